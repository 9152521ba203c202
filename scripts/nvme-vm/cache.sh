# A namespace as the cache of what was read of an object store: a server of the guest's own, which is
# gone when the rows are read again. Sourced, after duckdb.sh.

SERVER=127.0.0.1:9000

# reads CACHE: SQL that begins a session of a reader.
reader() {
  cat << SQL
CREATE SECRET s (TYPE s3, KEY_ID 'vm', SECRET 'vm-secret', ENDPOINT '$SERVER', USE_SSL false, URL_STYLE 'path');
SET GLOBAL penstock_cache_dir = 'nvme://$1';
SET GLOBAL penstock_cache_validation = 'never';
SQL
}

# cached NG: fills the cache, restarts, and reads with nobody there to ask; by both ways to commands.
cached() {
  local wanted="SELECT concat_ws('/', count(*), sum(i), bit_xor(h)) FROM (SELECT i, hash(i) AS h FROM range(100000) r(i))"
  local found="SELECT concat_ws('/', count(*), sum(i), bit_xor(h)) FROM 's3://lake/t.parquet'" tries=0 server io
  "$PENSTOCK" nvme format --cache "$1" --force
  mkdir -p "$shared/lake/lake"
  busybox ip link set lo up
  PENSTOCK_ACCESS_KEY=vm PENSTOCK_SECRET_KEY=vm-secret "$PENSTOCK" serve --dir "$shared/lake" --listen $SERVER &
  server=$!
  until (: < "/dev/tcp/${SERVER/://}") 2> /dev/null; do
    [ $((tries += 1)) -lt 250 ] && kill -0 $server || return 1
    busybox usleep 20000
  done
  { reader "$1?io=passthrough" && cat << SQL; } | sql -bail
COPY (SELECT i, hash(i) AS h FROM range(100000) r(i)) TO 's3://lake/t.parquet';
$(same "$found" "$wanted")
SQL
  kill $server
  wait $server || true
  for io in passthrough ioctl; do
    { reader "$1?io=$io" && cat << SQL; } | sql -bail
$(same "$found" "$wanted")
SELECT '$io:', CASE WHEN sum(value) > 500000 THEN 'read of the cache' ELSE error('nothing was read of it') END
FROM penstock_stats() WHERE name = 'device_bytes_read' AND device = '$(readlink -f "$1")';
SQL
  done
}
