#!/bin/bash
# usage: duckdb-clients.sh HTTPFS AZURE DUCKDB [--with penstock|theirs] [--s3 serve|versitygw] [--fast] [--table FILE]
#        [--update] [PATTERN...]
# Runs the tests of DuckDB's httpfs and azure with Penstock alone, and compares with duckdb/test/judges/clients.tsv.
# HTTPFS, AZURE and DUCKDB are clones of duckdb-httpfs, duckdb-azure and duckdb, made by whoever runs this. DUCKDB may be
# HTTPFS/duckdb where its submodules are there. On another DuckDB than that of build/venv:
# PYTHONPATH=$PWD/build/duckdb-wheel-2.0.1 scripts/judges/duckdb-clients.sh ...
# All of it runs in a network of its own, which has no way out and names of hosts of its own; util-linux's unshare makes it.
. "$(dirname "$0")/../lib.sh"
need openssl openssl
cd "$ROOT"
unshare --user --map-root-user --mount --net true 2>/dev/null ||
  die "this machine lets no user make namespaces (unshare --user --mount --net): run it where one may"
exec unshare --user --map-root-user --mount --net --kill-child \
  build/venv/bin/python duckdb/test/client_judge.py "$@"
