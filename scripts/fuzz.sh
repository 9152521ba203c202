#!/bin/bash
# usage: fuzz.sh [SECONDS [TARGET...]]
# Feeds every fuzz target, or those that are named, for SECONDS each (60), one after the other, under
# libFuzzer and with any Rust: what it finds begins in build/fuzz/TARGET and grows there from one run to
# the next. What makes a target fail lies in build/fuzz/failed, and the run goes on with the others.
. "$(dirname "$0")/lib.sh"
cd "$ROOT/fuzz"
need_rust
need c++ g++
seconds=${1:-60}
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || die "usage: $0 [SECONDS [TARGET...]]: $seconds is no number of seconds"
targets=("${@:2}")
[ $# -gt 1 ] || mapfile -t targets < <(basename -s .rs fuzz_targets/*.rs)
for target in "${targets[@]}"; do
  [ -e "fuzz_targets/$target.rs" ] || die "there is no target $target; there are: $(basename -s .rs fuzz_targets/*.rs | xargs)"
done
# What cargo-fuzz sets, without the address sanitizer, which takes a nightly compiler.
flags="--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1 -Cpasses=sancov-module"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
say "building ${#targets[@]} targets"
# With a triple named, build scripts and macros do without the flags.
triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags CARGO_TARGET_DIR=$ROOT/target/fuzz cargo build --release --quiet --target "$triple" \
  "${targets[@]/#/--bin=}"
failed=()
mkdir -p "$ROOT/build/fuzz/failed"
for target in "${targets[@]}"; do
  corpus=$ROOT/build/fuzz/$target
  mkdir -p "$corpus"
  log=$corpus.log
  if PENSTOCK_FUZZ_SEEDS=$corpus "$ROOT/target/fuzz/$triple/release/$target" "$corpus" \
    -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
    -artifact_prefix="$ROOT/build/fuzz/failed/$target-" > "$log" 2>&1; then
    say "$target: $(grep -E '^#[0-9]+.*DONE' "$log" | tr '\t' ' ')"
  else
    failed+=("$target")
    tail -n 20 "$log" >&2
    say "$target: FAILED, the input lies in build/fuzz/failed, all that was told in ${log#"$ROOT/"}"
  fi
done
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}"
