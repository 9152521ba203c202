#!/bin/bash
# usage: s3tests.sh CHECKOUT [--lane LANE] [--update] [--log FILE] [-- PYTEST WORDS...]
# Runs ceph's s3-tests (github.com/ceph/s3-tests; CHECKOUT is a clone of it, made by whoever runs
# this) on a lane and compares with crates/gateway/pytests/judges.
. "$(dirname "$0")/../lib.sh"
[ -f "${1:-}/s3tests/functional/test_s3.py" ] || die "usage: $0 CHECKOUT: a clone of ceph/s3-tests"
checkout=$(cd "$1" && pwd)
shift
requirements="$ROOT/scripts/requirements/s3tests.txt"
venv="$CACHE/s3tests-$(sha256sum "$requirements" | cut -c1-12)"
if [ ! -x "$venv/bin/python" ]; then
  say "packages of s3-tests (once; kept in $venv)"
  rm -rf "$venv.part"
  python3 -m venv "$venv.part"
  "$venv.part/bin/python" -m pip install -q -r "$requirements" >&2
  mv -T "$venv.part" "$venv"
fi
cd "$ROOT"
JUDGE_PYTHON="$venv/bin/python" PYTHONPATH=bench:crates/gateway/pytests \
  exec build/venv/bin/python -m gateway_tests.judge s3tests --checkout "$checkout" "$@"
