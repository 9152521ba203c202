# Every way to a device beside the others, by DuckDB and below it. Sourced, after attach.sh. The times
# are those of an emulation and say nothing about devices: what counts is that each can be chosen.

# all_ways NG BLOCK: words `io queues device`, NVMe commands on the character device.
all_ways() {
  local io queues device
  for io in file direct uring ioctl passthrough; do
    device=$2
    case $io in ioctl | passthrough) device=$1 ;; esac
    for queues in sync single pool thread; do echo "$io $queues $device"; done
  done
}

# seen IO QUEUES: SQL that fails unless the open queues are as many as the discipline has, and had as
# many commands in flight as the io can have: a block of DuckDB's is several NVMe commands.
seen() {
  local queues='queues >= 1' most='most >= 1'
  case $2 in single) queues='queues = 1' ;; pool) queues="queues = $(nproc)" ;; esac
  case $1/$2 in
  */sync | file/* | direct/* | ioctl/*) most='most = 1' ;;
  passthrough/*) most='most >= 2' ;;
  esac
  cat << SQL
WITH seen AS (
  SELECT count(DISTINCT queue) AS queues, max(value) FILTER (name = 'device_in_flight_most')::BIGINT AS most
  FROM penstock_stats() WHERE device IS NOT NULL AND queue <> 'closed'
)
SELECT 'emulated, DuckDB: $1 $2:', queues, 'queues, in flight', most,
  CASE WHEN $queues AND $most THEN '' ELSE error('$1 $2: $queues and $most were wanted') END
FROM seen;
SQL
}

# variants NG BLOCK COUNT: the volume has the database x with so many rows; reads only.
variants() {
  local io queues device
  all_ways "$1" "$2" | while read -r io queues device; do
    printf 'emulated, random reads of 4 KiB: %-11s %-6s ' "$io" "$queues"
    "$shared/bench" "$device" "io=$io" "queues=$queues" size_bytes=4096 depth=8 batch=16 threads=2 seconds=0.1
  done
  all_ways "$1" "$2" | while read -r io queues device; do
    cat << SQL
ATTACH 'nvme://$device?db=x&io=$io&queues=$queues' AS d (READ_ONLY);
.timer on
$(holds "$3")
.timer off
SELECT CASE WHEN path LIKE '%io=$io&queues=$queues' THEN '' ELSE error('$io $queues: ' || path) END
FROM duckdb_databases() WHERE database_name = 'd';
$(seen "$io" "$queues")
DETACH d;
SQL
  done | sql -bail
}
