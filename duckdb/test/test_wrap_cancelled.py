"""Wrap mode cancelled at every point: no hang, the next statement is right, no helper is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pytest
from harness import Fake, stats, wait_until
from wrapping import LARGE_READS, ONE_READ_AT_A_TIME, wrapped

ROWS = 400_000
# Every read that may be split is, and takes all helpers that there are.
SETTINGS = (
    LARGE_READS + ONE_READ_AT_A_TIME + "SET threads = 1; SET enable_external_file_cache = false;"
    "SET GLOBAL penstock_parallel_read_auto_fanout_enabled = false;"
    "SET GLOBAL penstock_parallel_read_chunk_size_bytes = '256KiB';"
    "SET GLOBAL penstock_parallel_read_min_bytes = 0;"
    "SET GLOBAL penstock_parallel_read_max_fanout = 4;"
    "SET GLOBAL penstock_parallel_read_io_threads = 3"
)
# How long a request is held up in which the statement is interrupted.
HELD_MS = 150


@pytest.fixture
def store(wrapped_store: Fake) -> Fake:
    """Each store that another extension can serve in turn."""
    return wrapped_store


@pytest.fixture
def url(con: duckdb.DuckDBPyConnection, store: Fake) -> str:
    """A file of four row groups, which are read whole, and long enough to be split."""
    name = store.url("wrap/cancelled.parquet")
    con.execute(
        f"COPY (SELECT hash(i) AS a, hash(i + 1) AS b FROM range({ROWS}) t(i)) TO '{name}' "
        "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 100000)"
    )
    store.reset()
    return name


@contextmanager
def interrupted_in_a_fault(store: Fake, con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupts once the armed fault has met its request, if one comes to it."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            if any(store.tell("GET", "faults")):
                con.interrupt()
                return
            time.sleep(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_interrupted_in_each_of_its_requests(store: Fake, url: str) -> None:
    con = wrapped(store, settings=SETTINGS)
    sql = f"SELECT count(*), bit_xor(a), bit_xor(b) FROM '{url}'"
    right = con.execute(sql).fetchone()
    assert right
    # Four row groups in four parts each. The fake may list one a moment after it has answered it.
    wait_until(lambda: len(store.requests()) >= 4 * 4, "a request for each part")
    count = len(store.requests())
    interrupted = 0
    for number in range(1, count + 1):
        store.reset()
        store.arm(f"latency={HELD_MS},nth={number}")
        begun = time.monotonic()
        with interrupted_in_a_fault(store, con):
            try:
                # It may have had its last request; and azure's extension asks once less, or more.
                assert con.execute(sql).fetchone() == right
            except duckdb.InterruptException:
                interrupted += 1
        assert time.monotonic() - begun < 10, number
        store.reset()
        if number % 5 == 0:
            assert con.execute(sql).fetchone() == right, number
    assert interrupted >= count * 3 // 4, (interrupted, count)
    # A helper that was lost would be missing in each read from then on. One that has just helped
    # may be a moment late.
    wait_until(lambda: all_help(con, sql, right), "four parts of each read")
    con.close()


def all_help(con: duckdb.DuckDBPyConnection, sql: str, right: tuple[int, ...]) -> bool:
    """Whether all three helpers took part in each of the reads."""
    before = stats(con)
    assert con.execute(sql).fetchone() == right
    after = stats(con)
    assert after["memory_held_bytes_now"] == before["memory_held_bytes_now"]
    split, parts = (
        after[name] - before[name] for name in ("wrapped_reads_split", "wrapped_sub_reads")
    )
    assert split <= 4
    return parts == 4 * 4
