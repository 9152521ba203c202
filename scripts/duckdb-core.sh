#!/bin/bash
# usage: duckdb-core.sh VERSION
# Builds the core of DuckDB as a static library with DuckDB's own CMake files, once per machine, version and compiler,
# and prints its directory. Without Parquet, JSON and what else extensions bring: the shim asks the core only. A build
# that is cut off goes on where it was.
. "$(dirname "$0")/duckdb-lib.sh"
version=${1:?usage: duckdb-core.sh VERSION}
need_version "$version"
need_cxx
tree=$("$ROOT/scripts/duckdb-sources.sh" tree "$version")
tools=$("$ROOT/scripts/duckdb-sources.sh" tools)
# The linker leaves out what the shim does not reach: that wants a section for each function. Small code is enough: of
# what is left, nothing runs for each row.
flags="-Os -DNDEBUG -w -ffunction-sections -fdata-sections -fvisibility=hidden"
sources=$ROOT/scripts/duckdb-core-sources.txt
key=$({ "$CXX" --version; echo "$flags"; grep -v '^#' "$sources"; } | sha256sum | cut -c1-12)
core=$CACHE/duckdb/v$version/core-$key
mkdir -p "$core"
# die_of_log WHAT LOG: with the first error in the log, and the room on its disk, which may be the reason.
die_of_log() {
  die "$1: $(grep -m 1 -iE 'error|no space' "$2" || echo 'the log has no error'); see $2;" \
    "its disk has $(df -h --output=avail "$2" | tail -n 1 | xargs) free"
}
exec 9>"$core/.lock"
lock 9 "core of DuckDB $version"
if [ ! -f "$core/.complete" ]; then
  say "building the core of DuckDB $version into $core"
  export PATH=$tools:$PATH
  # DuckDB's build type Release puts -O3 behind our flags, and from 2.0.1 on wants processors since 2013 (x86-64-v3).
  # Once: CMake would write anew the units that are trimmed below.
  [ -f "$core/build/build.ninja" ] ||
    cmake -S "$tree" -B "$core/build" -G Ninja -DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_C_FLAGS_MINSIZEREL="$flags" -DCMAKE_CXX_FLAGS_MINSIZEREL="$flags" -DDUCKDB_OPTIMIZATION_PROFILE=NONE \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DBUILD_SHELL=0 -DBUILD_UNITTESTS=0 -DBUILD_EXTENSIONS= -DSKIP_EXTENSIONS="parquet;jemalloc;core_functions" \
    -DOVERRIDE_GIT_DESCRIBE="v$version-0-g0000000000" >"$core/cmake.log" 2>&1 ||
    die_of_log "the core of DuckDB $version cannot be configured" "$core/cmake.log"
  mapfile -t objects < <(ninja -C "$core/build" -t inputs duckdb_static |
    python3 "$ROOT/scripts/duckdb-core-objects.py" "$tree" "$core/build")
  [ ${#objects[@]} -gt 0 ] || die "no object of the core of DuckDB $version was found: see $core/build"
  while_saying "core of DuckDB $version" \
    ninja -C "$core/build" -j "$(nproc)" "${objects[@]}" >"$core/ninja.log" ||
    die_of_log "the core of DuckDB $version does not compile" "$core/ninja.log"
  # What a build that was cut off has left of it would stay in it.
  rm -f "$core/libduckdb_core.a"
  (cd "$core/build" && ar qcs "$core/libduckdb_core.a" "${objects[@]}")
  touch "$core/.complete"
fi
rm -rf "$core/build"
echo "$core"
