#!/bin/bash
# usage: duckdb-check-headers.sh [VERSION...]
# Checks that the shim compiles against the headers of each DuckDB version it supports, and that the structures
# which wrap.cpp mirrors begin as they do there; builds nothing.
. "$(dirname "$0")/duckdb-lib.sh"
need "$CXX" g++
versions=("$@")
[ ${#versions[@]} -gt 0 ] || mapfile -t versions < <(duckdb_versions)
for version in "${versions[@]}"; do
  registry=$("$ROOT/scripts/duckdb-sources.sh" headers "$version")/../common/virtual_file_system.cpp
  # The first member of each structure is all that is looked at.
  for member in "FileSystemHandle:unique_ptr<FileSystem> file_system;" \
    "FileSystemRegistry:vector<shared_ptr<FileSystemHandle>> sub_systems;"; do
    first=$(sed -n "/^struct ${member%%:*} {/,/^};/p" "$registry" | grep -E '^[[:space:]][^():]*;$' | head -n 1)
    [ "$(xargs <<<"$first")" = "${member#*:}" ] ||
      die "DuckDB $version: ${member%%:*} begins with '$first', wrap.cpp expects '${member#*:}'"
  done
  mapfile -t includes < <(shim_includes "$version")
  shim_unit | "$CXX" "${CXX_FLAGS[@]}" "${includes[@]}" -fsyntax-only -x c++ - ||
    die "the shim does not compile against DuckDB $version"
done
