"""What DuckDB's scans of a distant Parquet file fetch ahead: requests, hits and bytes in vain."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import duckdb
import pytest
from harness import Fake, connect, start_fake, wait_until

GROUPS = 20
ROWS = GROUPS * 20480


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 30 ms to begin, with a file of twenty row groups."""
    fake = start_fake("s3", "--latency-ms", "30")
    con = scanner(fake, 1)
    con.execute(
        "COPY (SELECT i, hash(i) AS a, hash(i + 1) AS b, hash(i + 2) AS c, i::VARCHAR AS d "
        f"FROM range({ROWS}) t(i)) TO 's3://far/t.parquet' "
        "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 20480)"
    )
    yield fake
    fake.stop()


def scanner(far: Fake, threads: int) -> duckdb.DuckDBPyConnection:
    """A new database, which has read nothing yet."""
    con = connect()
    con.execute(f"CREATE SECRET s ({far.secret})")
    con.execute(f"SET threads = {threads}")
    con.execute("SET preserve_insertion_order = false")
    return con


def stats(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    rows = con.execute("SELECT name, value FROM penstock_stats()").fetchall()
    return {name: int(value) for name, value in rows}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "what", ["sum(a), sum(c)", "max(i), sum(a), sum(b), sum(c), max(d)"], ids=["some", "all"]
)
def test_a_scan_finds_its_row_groups_fetched(far: Fake, threads: int, what: str) -> None:
    con = scanner(far, threads)
    con.execute(f"SELECT {what} FROM 's3://far/t.parquet'").fetchall()
    found = stats(con)
    assert found["read_ahead_hits"] >= GROUPS - 3 * threads
    # DuckDB asks for the last row group without what it got beside the footer.
    assert found["read_ahead_wasted_bytes"] < 65_536
    con.close()


def test_a_limit_in_the_first_row_group_receives_no_other(far: Fake) -> None:
    con = scanner(far, 1)
    far.reset()
    # Behind the footer and the first row group the store is slow, so that this machine need not
    # be quick.
    far.arm("latency=2000,op=GetObject,nth=3-")
    con.execute("SELECT hash(t) FROM 's3://far/t.parquet' t LIMIT 5").fetchall()
    received = sum(request["bytes_out"] for request in far.requests())
    one = 20480 * 45  # four numbers of 8 bytes, a text, and what stands around them
    assert received < one + 300_000
    assert stats(con)["read_ahead_wasted_bytes"] == 0
    far.reset()
    con.close()


def test_row_groups_that_a_filter_skips_are_not_fetched(far: Fake) -> None:
    con = scanner(far, 1)
    # The last row group but one: its statistics leave it alone.
    con.execute(
        f"SELECT sum(a), sum(c) FROM 's3://far/t.parquet' WHERE i BETWEEN {ROWS - 30000} "
        f"AND {ROWS - 25000}"
    ).fetchall()
    assert stats(con)["read_ahead_bytes"] == 0
    con.close()


def test_an_interrupted_scan_leaves_no_request_running(far: Fake) -> None:
    con = scanner(far, 1)
    far.reset()
    # The footer and the first row group come, what is fetched ahead of the others does not.
    far.arm("stall,op=GetObject,nth=4-")
    failed: list[BaseException] = []

    def scan() -> None:
        try:
            con.execute("SELECT sum(a), sum(c) FROM 's3://far/t.parquet'").fetchall()
        except duckdb.Error as error:
            failed.append(error)

    watcher = con.cursor()
    thread = threading.Thread(target=scan)
    thread.start()
    wait_until(lambda: stats(watcher)["read_ahead_bytes"] > 0, "fetching ahead")
    assert stats(watcher)["memory_held_bytes_now"] > 1_000_000
    con.interrupt()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert len(failed) == 1
    # What came with the footer is kept.
    wait_until(lambda: stats(watcher)["memory_held_bytes_now"] <= 256 << 10, "giving memory back")
    far.reset()
    con.close()
