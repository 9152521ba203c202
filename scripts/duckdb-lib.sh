# How the C++ shim is compiled, and for which versions of DuckDB. Sourced by the duckdb-*.sh scripts.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CXX=${CXX:-g++}
# Each function and datum in a section of its own: the linker leaves out what nothing reaches.
CXX_FLAGS=(-std=c++17 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -ffunction-sections -fdata-sections -DNDEBUG
  -Wall -Wextra -Werror -Wno-unused-parameter)
VERSIONS_TABLE=$ROOT/scripts/duckdb-versions.tsv

# need_cxx: the compiler of the shim and of DuckDB's core.
need_cxx() {
  have "$CXX" || [ "$CXX" = g++ ] || die "CXX names the compiler $CXX, which is not here"
  need "$CXX" g++
  "$CXX" -std=c++17 -fsyntax-only -x c++ - <<<'#include <optional>' 2>/dev/null ||
    die "$CXX ($("$CXX" --version 2>&1 | head -n 1)) does not compile C++17: install g++ 8 or later, or name a compiler in CXX"
}

# duckdb_versions: one line each, newest first.
duckdb_versions() { grep -v '^#' "$VERSIONS_TABLE" | cut -f1; }

# need_version VERSION: ends with the list when the table has no such row.
need_version() {
  duckdb_versions | grep -qxF "$1" ||
    die "DuckDB $1 is not in scripts/duckdb-versions.tsv, which has: $(duckdb_versions | paste -sd' ')"
}

# ready_library VERSION: the version of the npm package with its libduckdb.so, or -.
ready_library() { awk -F '\t' -v version="$1" '$1 == version { print $2 }' "$VERSIONS_TABLE"; }

# shim_includes VERSION: one compiler flag per line.
shim_includes() {
  local headers third_party
  headers=$("$ROOT/scripts/duckdb-sources.sh" headers "$1")
  third_party=$headers/../../third_party
  printf '%s\n' -isystem "$headers" -isystem "$third_party/fmt/include" -isystem "$third_party/re2" \
    -isystem "$third_party/utf8proc/include" "-I$ROOT/duckdb/src/include" "-I$ROOT/duckdb/ffi/include"
}

# shim_unit: the whole shim as one translation unit, since reading DuckDB's headers is most of the work.
shim_unit() {
  local source
  for source in "$ROOT"/duckdb/src/*.cpp; do printf '#include "%s"\n' "$source"; done
}
