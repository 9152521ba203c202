#!/bin/bash
# usage: test.sh [STAGE...]
# All tests: lint, Rust, NVMe in a virtual machine, stores against servers that are not ours, the extension in SQL, Python.
# Every stage runs, whatever became of the others; the last line counts stages, those too that found nothing to test with, and the exit code is
# non-zero if one failed. Stages may be named to run only those.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
need_rust
need c++ g++
run=$(mktemp -d)
cleanup() {
  for pid in "$run"/*.pid; do
    [ ! -f "$pid" ] || scripts/peers/"$(basename "$pid" .pid)".sh stop "$run" || true
  done
  rm -rf "$run"
}
trap cleanup EXIT

# port NAME: starts a peer once and prints its port.
port() {
  if [ ! -f "$run/$1.port" ]; then
    scripts/peers/"$1".sh start "$run" >/dev/null
  fi
  cat "$run/$1.port"
}

# Lint waits for the Python environment itself, once its compiler is done.
lint() { scripts/lint.sh; }
rust() {
  # Azurite holds the Azure store to what its maker takes the protocol for.
  local azurite
  scripts/venv.sh test && azurite=$(port azurite) &&
    PENSTOCK_TEST_AZURITE="http://127.0.0.1:$azurite" PYTHONPATH=duckdb/test \
      build/venv/bin/python scripts/rust-test.py --features penstock-store/azurite
}
# Servers that are not ours take the exam of stores; each one's gaps are in conformance-gaps.tsv.
conformance() {
  # As the Rust stage built it: with other features all that it depends on would be built anew.
  cargo build --workspace --locked --quiet --features penstock-store/azurite --example conform &&
    PYTHONPATH=bench build/venv/bin/python scripts/conformance.py \
      "${CARGO_TARGET_DIR:-target}/debug/examples/conform"
}
build() { scripts/build.sh; }
sql() { scripts/duckdb-test.sh; }
# Ends with NOT_RUN where there is no emulation.
nvme() { scripts/test-nvme.sh; }
# The wheel for the DuckDB that the index gives those that name no version.
python() {
  scripts/wheel.sh "$(duckdb_versions | head -n 1)" &&
    build/venv/bin/python -m pytest -q python/tests bench/tests
}
# Clients that are not ours, on every lane; ClickHouse and the page that tells of it among them.
gateway() { PYTHONPATH=duckdb/test build/venv/bin/python scripts/gateway-test.py; }

scripts/venv.sh test &
venv=$!
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(lint rust build sql python gateway nvme conformance)
# What late stages want, and takes minutes of both processors, is made beside the early ones, which
# often wait. A late stage waits until it is made, and makes it itself where that failed.
early=()
case " ${stages[*]} " in
  *" sql "* | *" python "*) early+=("scripts/duckdb-core.sh $(duckdb_versions | head -n 1)") ;;
esac
case " ${stages[*]} " in
  *" conformance "*) early+=("scripts/peers/seaweedfs.sh install") ;;
esac
for command in "${early[@]}"; do nice -n 19 $command || true; done >"$run/early.log" 2>&1 &
passed=()
failed=()
not_run=()
# How a stage ends that found nothing to test with.
NOT_RUN=77
for stage in "${stages[@]}"; do
  begin=$SECONDS
  say "== $stage"
  [ "$stage" = lint ] || wait "$venv" || die "the Python environment could not be made"
  # `||` switches set -e off inside, so stages are single commands or chained with &&.
  status=0
  "$stage" || status=$?
  case $status in
    0) passed+=("$stage") ;;
    "$NOT_RUN") not_run+=("$stage") ;;
    *) failed+=("$stage") ;;
  esac
  say "== $stage: $((SECONDS - begin)) s"
done
[ ${#failed[@]} = 0 ] || printf 'failed: %s\n' "${failed[*]}"
[ ${#not_run[@]} = 0 ] || printf 'not run: %s\n' "${not_run[*]}"
printf 'stages: %d passed, %d failed, %d not run\n' ${#passed[@]} ${#failed[@]} ${#not_run[@]}
[ ${#failed[@]} = 0 ]
