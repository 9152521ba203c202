#!/bin/bash
# usage: duckdb-check-headers.sh [VERSION...]
# Checks that the shim compiles against the headers of each DuckDB version it supports; builds nothing.
. "$(dirname "$0")/duckdb-lib.sh"
need "$CXX" g++
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(1.5.5 2.0.0)
for version in "${versions[@]}"; do
  mapfile -t includes < <(shim_includes "$version")
  shim_unit | "$CXX" "${CXX_FLAGS[@]}" "${includes[@]}" -fsyntax-only -x c++ - ||
    die "the shim does not compile against DuckDB $version"
done
