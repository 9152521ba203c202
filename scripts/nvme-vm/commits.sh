#!/bin/bash
# usage: commits.sh prepare|check|work A B IO
# Transactions on a database of each of two volumes, whose contents are a function of their number:
# new rows, old ones away, the number. `work` says what is committed ("said NAME NUMBER") until it is
# stopped; `check` tells the next number ("next NAME NUMBER") after it has compared every row.
set -euo pipefail
here=$(dirname "$0")
. "$here/paths"
. "$here/duckdb.sh"
verb=$1 io=$4
declare -A volumes=([lba512]=$2 [lba4096]=$3)
ROWS=7
KEPT=40

# rows FROM TO: what transactions wrote there.
rows() { echo "SELECT i, repeat('x' || i, i % 300) AS text FROM range($1, $2) r(i)"; }
# sums ROWS: one text that tells them from others.
sums() { echo "SELECT concat_ws('/', count(*), sum(i), bit_xor(hash(i, text))) FROM ($1)"; }

attach() {
  # Checkpoints come in between now and then.
  echo "SET checkpoint_threshold = '16KB';"
  for name in "${!volumes[@]}"; do echo "ATTACH 'nvme://${volumes[$name]}?db=d&io=$io' AS $name;"; done
}

prepare() {
  for name in "${!volumes[@]}"; do
    echo "CREATE TABLE $name.t (i BIGINT PRIMARY KEY, text VARCHAR);"
    echo "CREATE TABLE $name.done AS SELECT 0::BIGINT AS n;"
  done
}

check() {
  for name in "${!volumes[@]}"; do
    echo "SET VARIABLE $name = (SELECT n FROM $name.done);"
    same "$(sums "FROM $name.t")" \
      "$(sums "$(rows "greatest(0, getvariable('$name') - $KEPT) * $ROWS" "getvariable('$name') * $ROWS")")"
    echo "SELECT 'next', '$name', getvariable('$name');"
  done
}

# round: one transaction on each.
round() {
  for name in "${!volumes[@]}"; do
    cat << SQL
BEGIN;
INSERT INTO $name.t $(rows "getvariable('$name') * $ROWS" "(getvariable('$name') + 1) * $ROWS");
DELETE FROM $name.t WHERE i < (getvariable('$name') + 1 - $KEPT) * $ROWS;
UPDATE $name.done SET n = getvariable('$name') + 1;
COMMIT;
SELECT 'said', '$name', getvariable('$name');
SET VARIABLE $name = getvariable('$name') + 1;
SQL
  done
}

case $verb in
prepare)
  for volume in "${volumes[@]}"; do "$PENSTOCK" nvme format "$volume" --io "$io" --force > /dev/null; done
  { attach && prepare; } | sql -bail
  ;;
check) { attach && check; } | sql -bail ;;
# `yes` ends with DuckDB.
work) { attach && check && yes "$(round)"; } | sql -bail ;;
esac
