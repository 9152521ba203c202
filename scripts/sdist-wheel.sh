#!/bin/bash
# usage: sdist-wheel.sh [VERSION...]
# Builds the wheel where there is nothing but the sources, as pip does from a source distribution: for the named versions
# of DuckDB, or the newest. python/build_backend.py calls it.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
versions=("$@")
[ ${#versions[@]} -gt 0 ] || mapfile -t versions < <(duckdb_versions | head -n 1)
for version in "${versions[@]}"; do need_version "$version"; done
tools=$(scripts/duckdb-sources.sh tools)
scripts/release.sh
mkdir -p build
cp "${CARGO_TARGET_DIR:-target}/release/penstock" build/penstock
PENSTOCK_FFI_READY=1 WHEEL_PYTHON=$tools/python scripts/wheel.sh "${versions[@]}"
