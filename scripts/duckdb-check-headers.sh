#!/bin/bash
# usage: duckdb-check-headers.sh [--moved] [VERSION...]
# Checks that the shim compiles against the headers of each DuckDB version it supports, and that the structures
# which wrap.cpp mirrors begin as they do there; builds nothing. With --moved it names those of the headers read by the
# shim in which the binary interface may have moved since the next older version (comments and blanks aside).
. "$(dirname "$0")/duckdb-lib.sh"
need_cxx
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# older VERSION: the next row of the table.
older() { duckdb_versions | grep -xFA1 "$1" | sed -n 2p; }
# same FILE FILE: whether two headers have the same code, comments and blanks aside.
same() { cmp -s <(sed 's#//.*##' "$1" | tr -d '[:space:]') <(sed 's#//.*##' "$2" | tr -d '[:space:]'); }
# print_moved VERSION: compares the headers that the shim was just compiled with.
print_moved() {
  local before headers name read=0 moved=()
  before=$(older "$1")
  [ -n "$before" ] || return 0
  headers=$("$ROOT/scripts/duckdb-sources.sh" headers "$1")
  before_headers=$("$ROOT/scripts/duckdb-sources.sh" headers "$before")
  for name in $(tr -d '\\' <"$scratch/read" | tr ' ' '\n' | sed -n "s#^$headers/##p" | sort -u); do
    read=$((read + 1))
    cmp -s "$headers/$name" "$before_headers/$name" || same "$headers/$name" "$before_headers/$name" || moved+=("$name")
  done
  say "DuckDB $1: of $read headers that the shim reads ${#moved[@]} differ from those of $before"
  printf '%s\n' "${moved[@]}"
}
moved_wanted=
[ "${1:-}" != --moved ] || { moved_wanted=yes; shift; }
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
  shim_unit | "$CXX" "${CXX_FLAGS[@]}" "${includes[@]}" -fsyntax-only -MD -MF "$scratch/read" -x c++ - ||
    die "the shim does not compile against DuckDB $version"
  [ -z "$moved_wanted" ] || print_moved "$version"
done
