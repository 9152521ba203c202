#!/bin/bash
# usage: duckdb-build-toy.sh VERSION
# Builds the small extension whose file systems the tests of wrap mode wrap (duckdb/test/toy.cpp) and prints its path.
# It is linked to the ready libduckdb.so where there is one, as Penstock's own is for tests, or as LINK says; and built
# again only when it, the compiler or the core of DuckDB changed.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
version=${1:?usage: duckdb-build-toy.sh VERSION}
need_version "$version"
need_cxx
[ "$(ready_library "$version")" = - ] || LINK=${LINK:-shared}
if [ "${LINK:-static}" = shared ]; then
  library=$(scripts/duckdb-sources.sh library "$version")
  core=(-L"$library" -lduckdb "-Wl,-rpath,$library")
else
  core=$(scripts/duckdb-core.sh "$version")
  core=("$core"/*.a)
fi
mapfile -t includes < <(shim_includes "$version")
out=build/duckdb/.toy-v$version
mkdir -p "$out"
exec 9>"$out/.lock"
lock 9 "small extension for DuckDB $version"
stamp=$({ "$CXX" --version; echo "${core[@]}" "${CXX_FLAGS[@]}" "${includes[@]}"; cat duckdb/test/toy.cpp \
  duckdb/src/include/compat.hpp; } | sha256sum)
if [ "$stamp" != "$(cat "$out/stamp" 2>/dev/null)" ]; then
  echo "{ global: toy_duckdb_cpp_init; local: *; };" >"$out/exports.map"
  "$CXX" -shared "${CXX_FLAGS[@]}" "${includes[@]}" -O0 duckdb/test/toy.cpp -o "$out/toy.so" \
    -Wl,--start-group "${core[@]}" -Wl,--end-group -Wl,--gc-sections -Wl,--version-script="$out/exports.map" \
    -Wl,--exclude-libs,ALL -Wl,-z,defs -lpthread -ldl
  python3 scripts/duckdb-footer.py "$out/toy.so" "$out/toy.duckdb_extension" "v$version"
  echo "$stamp" >"$out/stamp"
fi
echo "$ROOT/$out/toy.duckdb_extension"
