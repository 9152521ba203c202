#!/bin/bash
# usage: sanitize.sh [ARGUMENT OF cargo test...]
# Runs the tests of the crates that have `unsafe` (docs/unsafe.md) under the address sanitizer, by the pinned compiler:
# reads and writes outside of what was allocated, after it was freed, and what leaks. By hand: everything is compiled anew,
# into target/sanitize. The standard library is the compiler's, so what happens inside it goes unseen.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
need_rust
need cc gcc
triple=$(rustc -vV | sed -n 's/^host: //p')
# The flag is one of nightly's, and the pinned compiler has it all the same.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$ROOT/target/sanitize
arguments=("$@")
[ ${#arguments[@]} -gt 0 ] || arguments=(-p penstock-device -p penstock-ffi)
# With a triple named, build scripts and macros do without the flags.
cargo test --locked --target "$triple" "${arguments[@]}"
