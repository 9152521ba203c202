"""Settings that change while a result is open: its statement goes on by those it began with."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from harness import Fake, connect, data_requests, scanner, start_fake, stats, wait_until

GROUPS = 20
ROWS = GROUPS * 20480

# What each may be set to without contradicting another one.
VALUES = {
    "ca_file": [""],
    "cache_dir": ["{dir}/one", "{dir}/two", ""],
    "cache_disk_bytes": ["64MiB", "16GiB"],
    "cache_memory_bytes": ["0", "32MiB"],
    "cache_validation": ["always", "query", "time", "never", "auto"],
    "connect_timeout_ms": ["5000", "10000"],
    "connections_per_host": ["1", "2", "64"],
    "http_proxy": [""],
    "list_page_size": ["1", "5000"],
    "listing_validity_ms": ["0", "60000"],
    "memory_limit_bytes": ["64MiB", "1GiB"],
    "metadata_cache_entries": ["0", "1", "100000"],
    "metadata_validity_ms": ["0", "60000"],
    "nvme_io": ["direct", "auto"],
    "nvme_queue_depth": ["1", "32"],
    "nvme_queues": ["single", "thread"],
    "nvme_wait": ["poll", "sleep"],
    "nvme_spill_memory_bytes": ["0", "8GiB"],
    "open_fetch_bytes": ["0", "1MiB", "256KiB"],
    "parallel_read_auto_fanout_enabled": ["false", "true"],
    "parallel_read_auto_fanout_overhead_adaptive_enabled": ["false", "true"],
    "parallel_read_auto_fanout_overhead_ms": ["0", "600000", "50"],
    "parallel_read_chunk_size_bytes": ["256KiB", "4GiB", "16MiB"],
    "parallel_read_dedicated_handles": ["true", "false"],
    "parallel_read_enabled": ["false", "true"],
    "parallel_read_io_threads": ["1", "256", "16"],
    "parallel_read_max_fanout": ["1", "256", "4"],
    "parallel_read_min_bytes": ["0", "1GiB", "2MiB"],
    "parallel_read_recommended_preset_enabled": ["true", "false"],
    "part_size_bytes": ["5MiB", "8MiB"],
    "request_deadline_ms": ["30000", "120000"],
    "request_log_entries": ["0", "1", "1000"],
    "retry_base_ms": ["1", "100"],
    "retry_max_ms": ["100", "10000"],
    "stall_timeout_ms": ["3000", "30000"],
    "upload_concurrency": ["1", "16"],
    "upload_overlap_enabled": ["false", "true"],
    "warm_connections_max": ["0", "1024", "16"],
}


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 10 ms to begin, with the same rows in two forms."""
    fake = start_fake("s3", "--latency-ms", "10")
    con = scanner(fake)
    rows = f"(SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range({ROWS}) t(i))"
    con.execute(
        f"COPY {rows} TO 's3://far/t.parquet' "
        "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 20480)"
    )
    con.execute(f"COPY {rows} TO 's3://far/t.csv'")
    con.execute("COPY (SELECT i FROM range(100) t(i)) TO 's3://far/small.csv'")
    con.close()
    yield fake
    fake.stop()


@contextmanager
def within(seconds: float, *cons: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What hangs is interrupted, and fails its test."""
    over = threading.Event()

    def run() -> None:
        if not over.wait(seconds):
            for con in cons:
                con.interrupt()

    watchdog = threading.Thread(target=run)
    watchdog.start()
    try:
        yield
    finally:
        over.set()
        watchdog.join()


class Stream:
    """A result that is taken bit by bit."""

    def __init__(self, far: Fake, name: str, con: duckdb.DuckDBPyConnection) -> None:
        self.far, self.name, self.con, self.seen = far, name, con, 0
        # DuckDB's own buffers of CSV are longer than the file.
        buffers = ", buffer_size = 2097152, max_line_size = 65536" if name == "t.csv" else ""
        con.execute("SET streaming_buffer_size = '64KB'")
        # So long a step that was asked for ahead may hold a connection while nobody takes rows.
        con.execute("SET GLOBAL penstock_stall_timeout_ms = 2000")
        read = f"read_{name[2:]}('s3://far/{name}'{buffers})"
        con.execute(f"SELECT i, a FROM {read}")

    def take(self, count: int) -> int:
        """Takes the next rows, which are those that follow."""
        rows = self.con.fetchmany(count)
        numbers = [row[0] for row in rows]
        assert numbers == list(range(self.seen, self.seen + len(rows)))
        self.seen += len(rows)
        return len(rows)

    def take_rest(self) -> None:
        """Takes what is left, to the last row."""
        while self.take(50_000):
            pass
        assert self.seen == ROWS

    def bytes_sent(self) -> int:
        """What the store has sent of it."""
        return sum(size for _, _, size in data_requests(self.far, self.name))


def count_small(con: duckdb.DuckDBPyConnection) -> tuple[int, ...] | None:
    """A statement that begins now, and so by the settings as they are."""
    return con.execute("SELECT count(*), sum(i) FROM 's3://far/small.csv'").fetchone()


def test_every_setting_is_changed_here() -> None:
    con = connect()
    rows = con.execute("SELECT name FROM penstock_settings()").fetchall()
    con.close()
    # Of those that are read once a change is refused.
    assert {name.removeprefix("penstock_") for (name,) in rows} - {"io_threads"} == set(VALUES)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_result_that_is_open_is_right_whatever_is_set(
    far: Fake, name: str, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    changes = [(setting, value) for setting in VALUES for value in VALUES[setting]]
    chance.shuffle(changes)
    con = scanner(far, threads=2)
    other = con.cursor()
    far.reset()
    with within(120, con, other):
        stream = Stream(far, name, con)
        stream.take(10)
        before = stream.bytes_sent()
        for number, (setting, value) in enumerate(changes):
            value = value.format(dir=tmp_path)
            other.execute(f"SET GLOBAL penstock_{setting} = '{value}'")
            if number % 9 == 8:
                other.execute("CALL penstock_clear_cache()")
            assert count_small(other) == (100, sum(range(100))), (setting, value)
            stream.take(ROWS // len(changes) // 2)
        stream.take_rest()
        assert stream.bytes_sent() > before, "it was read while settings changed"
    assert count_small(other) == (100, sum(range(100)))
    con.close()
    other.close()


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_what_contradicts_or_cannot_work_is_told_to_the_next_statement_only(
    far: Fake, name: str
) -> None:
    con = scanner(far, threads=2)
    other = con.cursor()
    # Nobody listens on a port that is bound only, and nobody else gets it.
    with socket.socket() as bound, within(60, con, other):
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}"
        stream = Stream(far, name, con)
        for sets, told in (
            ({"retry_base_ms": "20000"}, "`penstock_retry_base_ms` and `penstock_retry_max_ms`"),
            (
                {"cache_memory_bytes": "2GiB"},
                "`penstock_cache_memory_bytes` and `penstock_memory_limit_bytes`",
            ),
            (
                {"memory_limit_bytes": "64MiB", "part_size_bytes": "128MiB"},
                "`penstock_part_size_bytes` and `penstock_memory_limit_bytes` contradict",
            ),
            ({"http_proxy": nobody}, "no connection to the proxy"),
        ):
            stream.take(ROWS // 20)
            for setting, value in sets.items():
                other.execute(f"SET GLOBAL penstock_{setting} = '{value}'")
            with pytest.raises(duckdb.Error, match=told):
                count_small(other)
            stream.take(ROWS // 20)
            other.execute("CALL penstock_clear_cache()")
            for setting in sets:
                other.execute(f"RESET GLOBAL penstock_{setting}")
            assert count_small(other) == (100, sum(range(100)))
        other.execute("SET GLOBAL penstock_retry_base_ms = 20000")
        stream.take_rest()
    con.close()
    other.close()


def test_what_ends_an_open_result_gives_its_memory_back(far: Fake) -> None:
    """A SET on the connection itself: DuckDB closes the result for it."""
    con = scanner(far, threads=2)
    watcher = con.cursor()
    with within(60, con, watcher):
        stream = Stream(far, "t.parquet", con)
        stream.take(ROWS // 4)
        con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
        assert count_small(con) == (100, sum(range(100)))
        # A sixteenth of the limit is kept of opened objects.
        kept = (64 << 20) // 16
        wait_until(lambda: stats(watcher)["memory_held_bytes_now"] <= kept, "giving memory back")
        stream = Stream(far, "t.parquet", con)
        stream.take_rest()
    con.close()
    watcher.close()
