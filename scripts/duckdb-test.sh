#!/bin/bash
# usage: duckdb-test.sh [sqllogic file or directory...]
# The extension in SQL and in trouble, against the fakes: sqllogictest files, then pytest.
# Needs build/venv (test set), build/penstock-fake and the extension.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
python=${PENSTOCK_TEST_PYTHON:-build/venv/bin/python}
[ -x "$python" ] || die "no $python: run scripts/venv.sh test"
"$python" duckdb/test/sqllogic.py "$@" && sql=0 || sql=1
[ $# = 0 ] || exit $sql
"$python" -m pytest -q duckdb/test && py=0 || py=1
exit $((sql | py))
