#!/bin/bash
# usage: test-storage.sh [PATTERN...]
# A part of DuckDB's own storage tests (duckdb/test/judges/storage-brief.txt, a minute) on databases of a volume:
# any other set of failures than that of storage-cannot.tsv fails. The tests come from DuckDB's repository, or from
# the clone that PENSTOCK_TEST_DUCKDB names. Needs build/penstock, the extension and the test set of build/venv.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
checkout=${PENSTOCK_TEST_DUCKDB:-}
# The binary knows all variables of its own, and refuses others that begin alike.
unset PENSTOCK_TEST_DUCKDB
# By which the caller knows that nothing was tested.
NOT_RUN=77
if [ -z "$checkout" ]; then
  version=$(build/venv/bin/python -c 'import duckdb; print(duckdb.__version__)')
  status=0
  checkout=$(scripts/duckdb-sources.sh tests "$version") || status=$?
  if [ "$status" = "$NOT_RUN" ]; then
    say "test-storage: NOT RUN: DuckDB's tests are not here, see above"
  fi
  [ "$status" = 0 ] || exit "$status"
fi
[ $# -gt 0 ] || set -- --brief
exec build/venv/bin/python duckdb/test/storage_judge.py "$checkout" "$@"
