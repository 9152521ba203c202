"""Statements of one database that read the same file at the same time: who asks the store."""

from __future__ import annotations

import threading

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake, data_requests, scanner, stats

STATEMENTS = 6
WINDOW = 256 << 10


def run_at_once(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[object, ...]]:
    """The first row that each of several connections to the database gets."""
    barrier = threading.Barrier(STATEMENTS)
    rows: list[tuple[object, ...]] = []

    def run(cursor: duckdb.DuckDBPyConnection) -> None:
        barrier.wait()
        rows.extend(cursor.execute(statement).fetchall())

    threads = [threading.Thread(target=run, args=(con.cursor(),)) for _ in range(STATEMENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


@pytest.mark.parametrize(
    ("setting", "openings"),
    [
        ("penstock_cache_validation = 'time'", 1),
        ("penstock_cache_validation = 'always'", STATEMENTS),
    ],
)
def test_the_first_statements_of_a_database_open_a_file_once(
    store: Fake, setting: str, openings: int
) -> None:
    url = store.url("together/t.parquet")
    con = scanner(store)
    con.execute(f"COPY (SELECT i FROM range(200000) t(i)) TO '{url}' (FORMAT parquet)")
    con.close()
    # A new database: its statements also open the store at the same time.
    con = scanner(store)
    con.execute(f"SET GLOBAL {setting}")
    store.reset()
    store.arm("latency=1000,method=GET,key=*t.parquet")
    assert run_at_once(con, f"SELECT count(*) FROM '{url}'") == [(200_000,)] * STATEMENTS
    sizes = [size for _, _, size in data_requests(store, "t.parquet")]
    assert sizes.count(WINDOW) == openings, sizes
    # Azure serves the end of an object only where its size is known: that is asked for once. The
    # cache of DuckDB 2.0 reads a file whole that fits into one of its blocks.
    rest = 1 if store.kind == "azure" or IS_DUCKDB_2 else 0
    assert len(sizes) - openings == rest, sizes
    assert (stats(con)["flights_shared"] >= STATEMENTS - 1) is (openings == 1)
    con.close()
