#!/bin/bash
# usage: duckdb-test.sh [sqllogic file or directory...]
# The extension in SQL and in trouble, against the fakes. With arguments those sqllogictest files; else all of them on
# three versions of DuckDB, and pytest's on the oldest and on the newest, beside each other (duckdb/test/run_all.py).
# Needs build/venv (test set), build/penstock-fake and the extension.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
need openssl openssl
python=${PENSTOCK_TEST_PYTHON:-build/venv/bin/python}
[ -x "$python" ] || die "no $python: run scripts/venv.sh test"
[ $# = 0 ] || exec "$python" duckdb/test/sqllogic.py "$@"
exec "$python" duckdb/test/run_all.py
