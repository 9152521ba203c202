# DuckDB with the extension, in the virtual machine and beside it. Sourced; DUCKDB, EXTENSION and
# PENSTOCK are paths.

# sql [OPTION...]: SQL comes by stdin, a row is a line of words; -bail ends it at the first error.
sql() {
  { echo "LOAD '$EXTENSION'; SET threads = 2;" && cat; } |
    "$DUCKDB" -unsigned -init /dev/null -list -noheader -separator ' ' "$@"
}

# same QUERY QUERY: SQL that fails unless both give the same one row.
same() {
  echo "SELECT CASE WHEN ($1) = ($2) THEN 'same' ELSE error('other rows: ' || ($1) || ', not ' || ($2)) END;"
}
