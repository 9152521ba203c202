#!/bin/bash
# usage: duckdb-storage.sh CHECKOUT [--on nvme|file] [--slow] [--update] [PATTERN...]
# Runs the storage tests of a clone of DuckDB (at the version of the wheel) on databases of a volume, and
# compares with the lists in duckdb/test/judges. `--on file` runs them on plain files, without the extension.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"
exec build/venv/bin/python duckdb/test/storage_judge.py "$@"
