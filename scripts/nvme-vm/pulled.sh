#!/bin/bash
# usage: pulled.sh IMAGE SAID
# Looks at what a device held that was pulled out under DuckDB (attach.sh): a sound volume, and in it
# as many rows as were said to be committed at least, all of them whole transactions.
set -euo pipefail
here=$(dirname "$0")
. "$here/paths"
. "$here/duckdb.sh"
. "$here/attach.sh"
[ "$2" -ge 100 ]
"$PENSTOCK" nvme check "$1" --io direct | grep -c '^table .: sound' | grep -qx 3
sql -bail << SQL
ATTACH 'nvme://$1?db=x&io=direct' AS d (READ_ONLY);
SET VARIABLE found = (SELECT count(*) FROM d.t);
SELECT CASE WHEN getvariable('found') >= $2 AND getvariable('found') % 10 = 0 THEN 'rows:'
  ELSE error('$2 rows were said to be committed, there are ' || getvariable('found')) END,
  getvariable('found'), 'said:', $2;
$(same "$(sums "FROM d.t")" "$(sums "$(rows 0 100) UNION ALL SELECT w.* FROM ($(rows 0 10)) w, range((getvariable('found') - 100) // 10)")")
SQL
