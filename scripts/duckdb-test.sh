#!/bin/bash
# usage: duckdb-test.sh [sqllogic file or directory...]
# The extension in SQL and in trouble, against the fakes: sqllogictest files, then pytest; the former once more on the
# other DuckDB that it is linked for at once. Needs build/venv (test set), build/penstock-fake and the extension.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
need openssl openssl
python=${PENSTOCK_TEST_PYTHON:-build/venv/bin/python}
[ -x "$python" ] || die "no $python: run scripts/venv.sh test"
"$python" duckdb/test/sqllogic.py "$@" && sql=0 || sql=1
[ $# = 0 ] || exit $sql
"$python" -m pytest -q duckdb/test && py=0 || py=1
# As it came from PyPI, in front of the one that build/venv has.
other=1.5.6 wheel=build/duckdb-wheel-1.5.6
[ -d "$wheel" ] || { "$python" -m pip install -q --no-deps --target "$wheel.new" "duckdb==$other" && mv "$wheel.new" "$wheel"; }
scripts/duckdb-build-extension.sh "$other" && PYTHONPATH=$wheel "$python" duckdb/test/sqllogic.py && more=0 || more=1
exit $((sql | py | more))
