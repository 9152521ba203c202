#!/bin/bash
# usage: duckdb-test-other.sh VERSION [COMMAND...]
# Runs a command (the sqllogictest files where none is named) on another DuckDB than that of build/venv: its wheel as it
# came from PyPI, in front of the other, and the extension for it. The Rust library is the one that build/ was made of,
# where it is still there: to build it on its own would be to build it again, with other features of what it depends on.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
version=${1:?usage: duckdb-test-other.sh VERSION [COMMAND...]}
shift
need_version "$version"
python=${PENSTOCK_TEST_PYTHON:-build/venv/bin/python}
[ $# -gt 0 ] || set -- "$python" duckdb/test/sqllogic.py
wheel=$ROOT/build/duckdb-wheel-$version
[ -d "$wheel" ] || { rm -rf "$wheel.new" && "$python" -m pip install -q --no-deps --target "$wheel.new" "duckdb==$version" && mv "$wheel.new" "$wheel"; }
library=${CARGO_TARGET_DIR:-target}/release/libpenstock_ffi.a
if [ -f "$library" ] && [ build/duckdb/v1.5.5/penstock.duckdb_extension -nt "$library" ]; then
  export PENSTOCK_FFI_READY=1
fi
# The short cut where there is one: tests of the shipped file are those of the version that has none, and of the wheel.
[ "$(ready_library "$version")" = - ] || export LINK=${LINK:-shared}
scripts/duckdb-build-extension.sh "$version"
PYTHONPATH=$wheel exec "$@"
