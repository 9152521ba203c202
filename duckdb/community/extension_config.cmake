# Read by DuckDB's CMake files (-DDUCKDB_EXTENSION_CONFIGS=...): where the extension is, and its version.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../../Cargo.toml penstock_version REGEX "^version = " LIMIT_COUNT 1)
string(REGEX REPLACE "^version = \"(.*)\"$" "v\\1" penstock_version "${penstock_version}")
duckdb_extension_load(penstock
  SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}
  INCLUDE_DIR ${CMAKE_CURRENT_LIST_DIR}/../src/include
  EXTENSION_VERSION ${penstock_version})
