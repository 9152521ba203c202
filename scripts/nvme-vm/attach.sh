# Databases under ATTACH on NVMe namespaces, with DuckDB itself. Sourced, after duckdb.sh.

# Rows and their sums: of ROWS, the first to the last but one.
rows() { echo "SELECT i, repeat('x', i % 300) || i AS text FROM range($1, $2) r(i)"; }
sums() { echo "SELECT concat_ws('/', count(*), sum(i), bit_xor(hash(i, text))) FROM ($1)"; }
# holds COUNT: SQL that fails unless d.t has exactly the rows 0 to COUNT - 1.
holds() { same "$(sums "FROM d.t")" "$(sums "$(rows 0 "$1")")"; }

# databases NG BLOCK: made by passthrough, as a user does it; then its log is replayed, and it is
# written on, by each of the other ios.
databases() {
  local ng=$1 count=6000 device io
  sql -bail > "$shared/said" << SQL
ATTACH 'nvme://$ng?db=x' AS d;
CREATE TABLE d.t AS $(rows 0 5000);
CHECKPOINT d;
BEGIN; INSERT INTO d.t $(rows 5000 5500); COMMIT;
BEGIN; DELETE FROM d.t; ROLLBACK;
DETACH d;
ATTACH 'nvme://$ng?db=x' AS d;
$(holds 5500)
SET temp_directory = 'nvme://$ng?temp';
SET memory_limit = '40MB';
CREATE TEMP TABLE kept AS SELECT repeat('y', 300) || i AS text FROM range(150000) r(i);
SELECT CASE WHEN sum(size) > 0 THEN 'spilled' ELSE error('nothing was spilled') END FROM duckdb_temporary_files();
SELECT 'kept', count(*), sum(length(text)) FROM kept;
PRAGMA disable_checkpoint_on_shutdown;
INSERT INTO d.t $(rows 5500 6000);
.shell bash $shared/refused.sh $PENSTOCK $ng
SQL
  cat "$shared/said"
  # What .shell says of an exit status ends nothing.
  grep -q 'another process has the device open' "$shared/said"
  for io in ioctl:$ng ioctl:$2 uring:$2 passthrough:$ng; do
    device=${io#*:} io=${io%:*}
    sql -bail << SQL
ATTACH 'nvme://$device?db=x&io=$io' AS d;
$(holds $count)
PRAGMA disable_checkpoint_on_shutdown;
BEGIN; INSERT INTO d.t $(rows $count $((count + 100))); COMMIT;
SELECT '$io', path LIKE '%io=$io%' FROM duckdb_databases() WHERE database_name = 'd';
SQL
    count=$((count + 100))
  done
}

# pulled SERIAL ENDING IO: the device goes while DuckDB writes to a database on it. The error names
# it, and the process lives on. How many rows were said to be committed, a file tells the host.
pulled() {
  local device=/dev/vm/$1.$2 node
  node=$(readlink -f "$device")
  "$PENSTOCK" nvme format "$device" --io "$3"
  {
    echo "ATTACH 'nvme://$device?db=x&io=$3' AS d;"
    echo "CREATE TABLE d.t AS $(rows 0 100);"
    echo ".shell bash $shared/tell.sh pull $1"
    while [ -e "$node" ]; do
      echo "INSERT INTO d.t $(rows 0 10);"
      echo "SELECT 'said', count(*) FROM d.t;"
    done
    echo "INSERT INTO d.t $(rows 0 10);"
    echo "DETACH d;"
    echo "ATTACH 'nvme://$device?db=x&io=$3' AS d;"
    echo "SELECT 'lives', 42;"
  } | sql > "$shared/out" 2> "$shared/why" || true
  sort "$shared/why" | uniq -c | sort -rn | head -n 5
  [ "$(tail -n 1 "$shared/out")" = "lives 42" ]
  awk '$1 == "said" { said = $2 } END { print said + 0 }' "$shared/out" > "$shared/$1.said"
  grep -q "${node##*/}.* gone" "$shared/why"
}
