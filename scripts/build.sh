#!/bin/bash
# usage: build.sh
# The native side: release builds of the binary, the fakes and the static library, then the extension
# for DuckDB 1.5.5. Results go to build/.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
need cargo cargo
need c++ g++
mkdir -p build
say "building penstock, penstock-fake and the engine's static library (release)"
cargo build --release --locked --quiet -p penstock-cli -p penstock-testkit -p penstock-ffi
for binary in penstock penstock-fake; do
  # A copy under a new inode: a running server keeps the file that it was started from.
  cp "${CARGO_TARGET_DIR:-target}/release/$binary" "build/.$binary.new"
  mv -f "build/.$binary.new" "build/$binary"
done
say "building the extension for DuckDB 1.5.5"
scripts/duckdb-build-extension.sh 1.5.5
