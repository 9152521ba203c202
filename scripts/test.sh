#!/bin/bash
# usage: test.sh [STAGE...]
# All tests: lint, Rust, stores against servers that are not ours, the extension in SQL, Python.
# Every stage runs, whatever became of the others; the last line counts stages, and the exit code is
# non-zero if one failed. Stages may be named to run only those.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
need_rust
need c++ g++
run=$(mktemp -d)
started=()
cleanup() {
  for peer in "${started[@]}"; do "scripts/peers/$peer.sh" stop "$run" || true; done
  rm -rf "$run"
}
trap cleanup EXIT

start() { started+=("$1"); "scripts/peers/$1.sh" start "$run" >/dev/null; }

lint() { scripts/lint.sh; }
build() { scripts/build.sh; }
rust() {
  # Azurite and versitygw hold our stores and our fakes to what others take the protocols for.
  PENSTOCK_TEST_AZURITE="http://127.0.0.1:$(cat "$run/azurite.port")" \
  PENSTOCK_TEST_S3="http://127.0.0.1:$(cat "$run/versitygw.port")" \
    cargo test --workspace --locked --quiet --features penstock-store/azurite
}
peers() { start azurite && start versitygw; }
sql() { scripts/duckdb-test.sh; }
python() { build/venv/bin/python -m pytest -q python/tests bench/tests; }

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(lint peers rust build sql python)
passed=()
failed=()
for stage in "${stages[@]}"; do
  begin=$SECONDS
  say "== $stage"
  # A subshell would lose what `peers` started, and `if` switches set -e off inside: stages are
  # single commands or chained with &&.
  if "$stage"; then passed+=("$stage"); else failed+=("$stage"); fi
  say "== $stage: $((SECONDS - begin)) s"
done
[ ${#failed[@]} = 0 ] || printf 'failed: %s\n' "${failed[*]}"
printf 'stages: %d passed, %d failed\n' ${#passed[@]} ${#failed[@]}
[ ${#failed[@]} = 0 ]
