#!/bin/bash
# usage: build.sh
# Everything in build/: the Python environment, release builds of the binary and the fakes, and the
# extension for DuckDB 1.5.5, linked against a ready libduckdb.so (`make extension` and `make wheel` build those that are
# shipped). What waits for the network runs beside what needs the processor.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
need_rust
need c++ g++
need_cxx
need_python "${PYTHON:-python3}"
# Now, and not when the longest part has ended.
scripts/duckdb-sources.sh needs 1.5.5
mkdir -p build
[ -w build ] ||
  die "$ROOT/build cannot be written by $(id -un), since it is $(stat -c %U build)'s: build as $(stat -c %U build), or remove it"
# What the results of the bench say they were built from.
built=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || built+=-dirty
scripts/venv.sh demo &
venv=$!
(scripts/duckdb-sources.sh headers 1.5.5 && scripts/duckdb-sources.sh library 1.5.5) >/dev/null &
sources=$!
say "building penstock, penstock-fake and the engine's static library (release)"
scripts/release.sh
for binary in penstock penstock-fake penstock-bare; do
  # A copy under a new inode: a running server keeps the file that it was started from.
  cp "${CARGO_TARGET_DIR:-target}/release/$binary" "build/.$binary.new"
  mv -f "build/.$binary.new" "build/$binary"
done
wait "$sources" || die "DuckDB's headers or library could not be fetched"
say "building the extension for DuckDB 1.5.5"
LINK=shared PENSTOCK_FFI_READY=1 scripts/duckdb-build-extension.sh 1.5.5
echo "$built" > build/.commit
wait "$venv" || die "the Python environment could not be made"
