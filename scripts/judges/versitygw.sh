#!/bin/bash
# usage: versitygw.sh [--lane LANE] [--update] [--log FILE] [-- WORDS...]
# Runs versitygw's own suite of tests on a lane and compares with crates/gateway/pytests/judges.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"
program=$(scripts/peers/versitygw.sh install)
JUDGE_VERSITYGW="$program" PYTHONPATH=bench:crates/gateway/pytests \
  exec build/venv/bin/python -m gateway_tests.judge versitygw "$@"
