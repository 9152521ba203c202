"""Scans whose columns the plan tells: what follows is asked for with the first read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Fake, data_requests, scanner, start_fake, stats

GROUPS = 12
GROUP_ROWS = 20480
ROWS = GROUPS * GROUP_ROWS
CHUNK_BYTES = GROUP_ROWS * 8
"""Of one column in one row group, at least."""
OPENING_BYTES = (16 << 10, 256 << 10)
T = "'s3://far/t.parquet'"


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 200 ms to begin: no thread is late for them."""
    fake = start_fake("s3", "--latency-ms", "200")
    con = scanner(fake)
    columns = ", ".join(f"hash(i + {k}) AS c{k}" for k in range(7))
    rows = (
        f"(SELECT {{'a': i, 'b': [i]}} AS s, MAP {{i: 1}} AS m, {columns} FROM range({ROWS}) r(i))"
    )
    options = f"FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE {GROUP_ROWS}"
    con.execute(f"COPY {rows} TO {T} ({options})")
    for file in range(4):
        con.execute(
            f"COPY (SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range({ROWS}) r(i)) TO "
            f"'s3://far/part/p={file}/x.parquet' ({options})"
        )
    con.close()
    yield fake
    fake.stop()


def run(far: Fake, select: str, threads: int = 1) -> tuple[list[int], int]:
    """The bytes of each read that begins before the first one ends, and those that come in vain."""
    con = scanner(far, threads)
    far.reset()
    con.execute(select).fetchall()
    reads = [read for read in data_requests(far, ".parquet") if read[2] not in OPENING_BYTES]
    wasted = stats(con)["read_ahead_wasted_bytes"]
    con.close()
    first_end_us = min((end_us for _, end_us, _ in reads), default=0)
    return [size for begin_us, _, size in reads if begin_us < first_end_us], wasted


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT bit_xor(c0), bit_xor(c2), bit_xor(c5) FROM {T}",
        f"SELECT bit_xor(hash(t)) FROM {T} t",
        f"SELECT bit_xor(c6), max(m) FROM {T}",
        f"SELECT c1 % 9, count(*) FROM {T} GROUP BY ALL ORDER BY ALL",
        f"SELECT sum(x) FROM (SELECT c1 AS x FROM {T} UNION ALL SELECT 9)",
        f"SELECT c1 FROM {T} ORDER BY c1",
        f"SELECT count(*) FROM {T} t LEFT JOIN range(9) r(i) ON t.c4 = r.i",
        f"CREATE TABLE mine AS SELECT c3 FROM {T}",
        "SELECT bit_xor(a) FROM 's3://far/part/*/x.parquet'",
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_what_follows_is_asked_for_with_the_first_read(
    far: Fake, select: str, threads: int
) -> None:
    began, wasted = run(far, select, threads)
    # Without the plan one column of one row group for each thread, and of a glob 8 MiB. Those that
    # follow each other are one request.
    assert sum(began) >= 8 * CHUNK_BYTES
    assert wasted == 0


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT bit_xor(c0), bit_xor(c2) FROM {T} WHERE c4 > 1000000000000000000",
        f"SELECT c0, c2, c5 FROM {T} LIMIT 9",
        # Whoever takes the rows may stop.
        f"SELECT c0, c2, c5 FROM {T}",
        f"SELECT c0, c2, c5 FROM {T} USING SAMPLE 1% (system, 7)",
        f"SELECT c0, c2 FROM {T} ORDER BY c0 LIMIT 3",
        f"SELECT count(t.c2) FROM {T} t JOIN range(9) r(i) ON t.c0 = r.i",
        f"SELECT count(t.c2) FROM range(9) r(i) LEFT JOIN {T} t ON t.c0 = r.i",
        f"SELECT c1 FROM {T} UNION ALL SELECT c3 FROM {T}",
        f"SELECT EXISTS (SELECT c0 + c2 FROM {T})",
    ],
)
def test_a_scan_that_may_end_or_leave_out_rows_is_not_followed_before_it_goes_on(
    far: Fake, select: str
) -> None:
    began, _ = run(far, select)
    assert len(began) <= 1


def test_what_a_statement_before_brought_is_not_fetched_again(far: Fake) -> None:
    con = scanner(far)
    con.execute(f"SELECT bit_xor(c0) FROM {T}").fetchall()
    far.reset()
    con.execute(f"SELECT bit_xor(c0), bit_xor(c4) FROM {T}").fetchall()
    reads = data_requests(far, ".parquet")
    # The other column is in DuckDB's cache.
    assert sum(size for *_, size in reads) <= 1.1 * GROUPS * GROUP_ROWS * 8
    con.close()


def test_columns_of_which_the_file_says_more_than_the_plan_are_found_by_reading(far: Fake) -> None:
    con = scanner(far)
    found = con.execute(f"SELECT sum(s.a), sum(len(s.b)) FROM {T}").fetchone()
    assert found == (ROWS * (ROWS - 1) // 2, ROWS)
    assert stats(con)["read_ahead_wasted_bytes"] == 0
    con.close()
