"""One run of the workload `nvme`: a fresh process, one DuckDB session.

Reads a job (JSON) from standard input, writes the seconds of its statements to standard output. The
seconds of a scan, a sort and a join are those that EXPLAIN ANALYZE tells, as in the paper: without
opening. What opening takes is told beside it, so that nothing is gained by moving work there.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import duckdb

ORDERED = "SELECT * FROM d.customer ORDER BY c_address"
JOINED = "SELECT * FROM d.customer a JOIN d.customer b USING (c_name) WHERE a.c_address <> ''"


def explained_s(con: duckdb.DuckDBPyConnection, query: str) -> float:
    """What EXPLAIN ANALYZE says that a query took."""
    row = con.execute(f"EXPLAIN (ANALYZE, FORMAT json) {query}").fetchone()
    assert row is not None
    plan = json.loads(row[1])
    return float(plan["latency"])


def timed_s(con: duckdb.DuckDBPyConnection, *statements: str) -> float:
    """How long statements take together."""
    begin = time.perf_counter()
    for statement in statements:
        con.execute(statement)
    return time.perf_counter() - begin


def scan(con: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> dict[str, float]:
    """The paper's query."""
    attach = timed_s(con, f"ATTACH '{job['database']}' AS d (READ_ONLY)")
    seconds = explained_s(con, "SELECT * FROM d.customer")
    count = con.execute("SELECT count(c_comment) FROM d.customer").fetchone()
    assert count == (job["rows"],), f"{count} rows, not {job['rows']}"
    return {"attach": attach, "scan": seconds}


def lookup(con: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> dict[str, float]:
    """Opening, and one row by its key: what is fetched beside it is in its way."""
    begin = time.perf_counter()
    con.execute(f"ATTACH '{job['database']}' AS d (READ_ONLY)")
    query = f"SELECT c_name FROM d.customer WHERE c_custkey = {job['key']}"
    found = con.execute(query).fetchall()
    seconds = time.perf_counter() - begin
    assert found == [(f"Customer#{job['key']:09}",)], f"{found}, not the row {job['key']}"
    return {"lookup": seconds}


def load(con: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> dict[str, float]:
    """A bulk load out of memory, and the checkpoint that makes it durable."""
    con.execute(f"ATTACH '{job['source']}' AS s (READ_ONLY)")
    con.execute("CREATE TABLE source AS FROM s.customer")
    con.execute(f"ATTACH '{job['loaded']}' AS d")
    con.execute("DROP TABLE IF EXISTS d.customer; CHECKPOINT d")
    create = "CREATE TABLE d.customer AS FROM source"
    return {"load": timed_s(con, create, "CHECKPOINT d")}


def spill(con: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> dict[str, float]:
    """A sort and a join that do not fit into memory."""
    con.execute(f"SET memory_limit = '{job['memory']}'")
    con.execute(f"SET temp_directory = '{job['spill']}'")
    # Not read-only: that would open a device for reading, on which nothing can be spilled.
    con.execute(f"ATTACH '{job['database']}' AS d")
    return {"sort": explained_s(con, ORDERED), "join": explained_s(con, JOINED)}


def main() -> None:
    """Entry point."""
    job = json.load(sys.stdin)
    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    con.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    con.execute("SET enable_progress_bar = false")
    if job["extension"]:
        import penstock

        penstock.load(con)
    modes = {"scan": scan, "lookup": lookup, "load": load, "spill": spill}
    seconds = modes[job["mode"]](con, job)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = usage.ru_utime + usage.ru_stime
    json.dump({"seconds": seconds, "cpu_s": cpu_s}, sys.stdout)


if __name__ == "__main__":
    main()
