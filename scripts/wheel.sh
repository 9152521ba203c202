#!/bin/bash
# usage: wheel.sh
# Builds build/dist/penstock-*.whl for this platform from a staged copy, so that the checkout's
# package keeps taking its files from build/.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
stage="$ROOT/build/wheel"
rm -rf "$stage"
mkdir -p "$stage" build/dist
cp -r python/pyproject.toml python/setup.py python/README.md python/src "$stage/"
rm -rf "$stage"/src/*.egg-info
mkdir -p "$stage/src/penstock/_native"
cp build/penstock "$stage/src/penstock/_native/"
mkdir "$stage/src/penstock/_native/duckdb"
cp -r build/duckdb/v* "$stage/src/penstock/_native/duckdb/"
strip --strip-unneeded "$stage/src/penstock/_native/penstock"
build/venv/bin/python -m pip wheel -q --no-deps -w build/dist "$stage"
rm -rf "$stage"
ls -l build/dist/penstock-*.whl
