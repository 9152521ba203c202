"""A hundred thousand column chunks: looking ahead in such a file costs neither memory nor time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from harness import Fake, data_requests, round_trips, scanner, start_fake, stats

COLUMNS = 1000
GROUPS = 100
LATENCY_MS = 30
# Of it two thirds are the footer.
FILE_BYTES_MAX = 20 << 20


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    """A store some way off, with a file of a hundred row groups of a thousand columns."""
    path = tmp_path_factory.mktemp("chunks") / "chunks.parquet"
    rows = numpy.arange(GROUPS, dtype=numpy.int64)
    table = pyarrow.table({f"c{column}": rows * COLUMNS + column for column in range(COLUMNS)})
    pyarrow.parquet.write_table(
        table, path, row_group_size=1, compression="none", use_dictionary=False
    )
    assert pyarrow.parquet.read_metadata(path).num_row_groups == GROUPS
    fake = start_fake("s3", "--latency-ms", str(LATENCY_MS))
    con = scanner(fake)
    con.execute(
        f"COPY (SELECT content FROM read_blob('{path}')) TO 's3://far/chunks.parquet' (FORMAT blob)"
    )
    con.close()
    yield fake
    fake.stop()


class Held:
    """The most that Penstock holds while something runs, and the most of the process."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con, self.most, self.over = con.cursor(), 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.over.wait(0.01):
            self.most = max(self.most, stats(self.con)["memory_held_bytes_now"])

    def __enter__(self) -> Held:
        # 5 resets VmHWM (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
        self.before = resident("VmRSS")
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.grown = resident("VmHWM") - self.before
        self.con.close()


def resident(name: str) -> int:
    """Bytes of memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def total(column: int) -> int:
    """The sum of a column."""
    return sum(row * COLUMNS + column for row in range(GROUPS))


@pytest.mark.parametrize("limit", ["64MiB", "1GiB"])
@pytest.mark.parametrize("wanted", [[0], [3, 500, 999], list(range(COLUMNS))], ids=len)
def test_a_scan_of_some_or_all_of_them(far: Fake, wanted: list[int], limit: str) -> None:
    con = scanner(far, threads=2)
    con.execute(f"SET GLOBAL penstock_memory_limit_bytes = '{limit}'")
    sums = ", ".join(f"sum(c{column})" for column in wanted)
    far.reset()
    with Held(con) as held:
        begun = time.monotonic()
        row = con.execute(f"SELECT {sums} FROM 's3://far/chunks.parquet'").fetchone()
        took_s = time.monotonic() - begun
    assert row == tuple(total(column) for column in wanted)
    found, requests = stats(con), data_requests(far, "chunks.parquet")
    con.close()
    # Opening, the rest of the footer, and at most one for each chunk: DuckDB joins no columns that
    # lie further apart than 16 KiB, and reads all of a row group at once.
    chunks = GROUPS * (len(wanted) if len(wanted) < COLUMNS else 1)
    assert len(requests) <= chunks + 4
    received = sum(size for _, _, size in requests)
    assert found["read_ahead_wasted_bytes"] <= received / 10
    assert received <= 2 * FILE_BYTES_MAX
    if limit == "1GiB":
        assert found["read_ahead_hits"] >= chunks * 9 // 10
        assert round_trips(requests) <= 12, requests
    # The footer, decoded by DuckDB, is the most of what the process grows by.
    assert held.most <= 32 << 20
    assert held.grown <= 256 << 20
    # Without looking ahead it is a round trip for each chunk, by two threads.
    assert took_s <= 3 + chunks * LATENCY_MS / 1000
