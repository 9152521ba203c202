#!/bin/bash
# usage: profile.sh
# Makes the profile of the release build anew, crates/cli/rustc-VERSION.profdata for the compiler that is here: builds a
# binary that counts what it executes, sends it the traffic of bench/penstock_bench/training.py, and keeps the counts of
# what was executed. Wants what `make build` leaves; ten minutes on two cores.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
[ -x build/penstock-fake ] && [ -x build/venv/bin/python ] || die "run \`make build\` first"
# It must be of the compiler's LLVM, or later.
major=$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
profdata=${LLVM_PROFDATA:-/usr/lib/llvm-$major/bin/llvm-profdata}
need "$profdata" "llvm-$major"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/profile
rm -rf "$target/counts"
mkdir -p "$target"
say "building a binary that counts"
# What runs while it is built counts too, and is not wanted.
PROFILE_TO_MAKE=1 LLVM_PROFILE_FILE=/dev/null CARGO_TARGET_DIR=$target scripts/release.sh
say "training it"
LLVM_PROFILE_FILE=$target/counts/%m_%p.profraw PYTHONPATH=bench \
  build/venv/bin/python -m penstock_bench.training "$target/release/penstock"
profile=crates/cli/rustc-$(rustc --version | cut -d' ' -f2).profdata
# Sparse: of a function that no gateway calls it says nothing, and the compiler takes it as it always did. As one that is
# never called it would be made small and slow, and DuckDB calls it.
"$profdata" merge --sparse -o "$profile" "$target"/counts/*.profraw
say "$profile is made anew; scripts/build.sh builds by it"
