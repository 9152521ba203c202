#!/bin/bash
# usage: duckdb-test-other.sh VERSION
# The sqllogictest files on another DuckDB than that of build/venv: its wheel as it came from PyPI, in front of the
# other, and the extension that is linked for it. The Rust library is the one that build/ was made of, where it is
# still there: to build it on its own would be to build it again, with other features of what it depends on.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
version=${1:?usage: duckdb-test-other.sh VERSION}
python=${PENSTOCK_TEST_PYTHON:-build/venv/bin/python}
wheel=build/duckdb-wheel-$version
[ -d "$wheel" ] || { "$python" -m pip install -q --no-deps --target "$wheel.new" "duckdb==$version" && mv "$wheel.new" "$wheel"; }
library=${CARGO_TARGET_DIR:-target}/release/libpenstock_ffi.a
if [ -f "$library" ] && [ build/duckdb/v1.5.5/penstock.duckdb_extension -nt "$library" ]; then
  export PENSTOCK_FFI_READY=1
fi
LINK=shared scripts/duckdb-build-extension.sh "$version"
PYTHONPATH=$wheel exec "$python" duckdb/test/sqllogic.py
