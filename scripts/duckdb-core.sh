#!/bin/bash
# usage: duckdb-core.sh VERSION
# Builds the core of DuckDB as static libraries with DuckDB's own CMake files, once per machine, version and compiler,
# and prints their directory. Without Parquet, JSON and what else extensions bring: the shim asks the core only. A build
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
key=$({ "$CXX" --version; echo "$flags"; } | sha256sum | cut -c1-12)
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
  while_saying "core of DuckDB $version" \
    ninja -C "$core/build" -j "$(nproc)" duckdb_static >"$core/ninja.log" ||
    die "the core of DuckDB $version does not compile: see $core/ninja.log"
  find "$core/build" -name '*.a' -exec mv -t "$core" {} +
  rm -rf "$core/build"
  touch "$core/.complete"
fi
echo "$core"
