# How the C++ shim is compiled. Sourced by duckdb-build-extension.sh and duckdb-check-headers.sh.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CXX=${CXX:-g++}
CXX_FLAGS=(-std=c++17 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -DNDEBUG
  -Wall -Wextra -Werror -Wno-unused-parameter)

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
