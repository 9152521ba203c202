#!/bin/bash
# usage: duckdb-core.sh VERSION
# Builds the core of DuckDB as a static library with DuckDB's own CMake files, once per machine, version and compiler,
# and prints its directory. Without Parquet, JSON and what else extensions bring: the shim asks the core only. A build
# that is cut off goes on where it was.
. "$(dirname "$0")/duckdb-lib.sh"
version=${1:?usage: duckdb-core.sh VERSION}
need_version "$version"
need "$CXX" g++
tree=$("$ROOT/scripts/duckdb-sources.sh" tree "$version")
tools=$("$ROOT/scripts/duckdb-sources.sh" tools)
# The linker leaves out what the shim does not reach: that wants a section for each function. Small code is enough: of
# what is left, nothing runs for each row.
flags="-Os -DNDEBUG -w -ffunction-sections -fdata-sections -fvisibility=hidden"
# Folders that the shim does not reach. Where a version needs one, the link of the extension names the symbol.
left_out="src/(common/(row_operations|types/row)|execution/(index|nested_loop_join|operator|physical_plan|sample)"
left_out+="|main/relation|storage/(compression|table))/|third_party/zstd/"
key=$({ "$CXX" --version; echo "$flags $left_out"; } | sha256sum | cut -c1-12)
core=$CACHE/duckdb/v$version/core-$key
mkdir -p "$core"
exec 9>"$core/.lock"
flock 9
if [ ! -f "$core/.complete" ]; then
  say "building the core of DuckDB $version into $core"
  export PATH=$tools:$PATH
  # DuckDB's build type Release puts -O3 behind our flags, and from 2.0.1 on wants processors since 2013 (x86-64-v3).
  cmake -S "$tree" -B "$core/build" -G Ninja -DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_C_FLAGS_MINSIZEREL="$flags" -DCMAKE_CXX_FLAGS_MINSIZEREL="$flags" -DDUCKDB_OPTIMIZATION_PROFILE=NONE \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DBUILD_SHELL=0 -DBUILD_UNITTESTS=0 -DBUILD_EXTENSIONS= -DSKIP_EXTENSIONS="parquet;jemalloc;core_functions" \
    -DOVERRIDE_GIT_DESCRIBE="v$version-0-g0000000000" >"$core/cmake.log" 2>&1 ||
    die "the core of DuckDB $version cannot be configured: see $core/cmake.log"
  mapfile -t objects < <(ninja -C "$core/build" -t inputs duckdb_static | grep '\.o$' | grep -Ev "$left_out")
  while_saying "core of DuckDB $version" \
    ninja -C "$core/build" -j "$(nproc)" "${objects[@]}" >"$core/ninja.log" ||
    die "the core of DuckDB $version does not compile: see $core/ninja.log"
  (cd "$core/build" && ar qcs "$core/libduckdb_core.a" "${objects[@]}")
  rm -rf "$core/build"
  touch "$core/.complete"
fi
echo "$core"
