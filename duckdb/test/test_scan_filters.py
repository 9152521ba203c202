"""Scans that filter: what DuckDB skips by the statistics of the row groups is not fetched ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Fake, data_requests, round_trips, scanner, start_fake, stats

GROUPS = 60
GROUP_ROWS = 20480
ROWS = GROUPS * GROUP_ROWS
IN_VAIN_MIN = 256 << 10
T = "'s3://far/t.parquet'"
"""In the order of `i`, `stamp` and `name`."""


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 60 ms to begin."""
    fake = start_fake("s3", "--latency-ms", "60")
    con = scanner(fake, 2)
    columns = (
        "i, i::INTEGER AS small, i / 8 AS half,"
        " TIMESTAMP '2020-01-01' + INTERVAL (i) SECOND AS stamp,"
        " DATE '2000-01-01' + (i // 1000)::INTEGER AS day, format('name of {:09d}', i) AS name,"
        " hash(i) AS a, hash(i + 1) AS b"
    )
    options = "FORMAT parquet, COMPRESSION uncompressed"
    con.execute(
        f"COPY (SELECT {columns} FROM range({ROWS}) r(i)) TO {T} "
        f"({options}, ROW_GROUP_SIZE {GROUP_ROWS})"
    )
    con.execute(
        f"COPY (SELECT i * 4096 AS k, i % 4 AS v FROM range({ROWS // 4096}) r(i)) TO "
        f"'s3://far/dimension.parquet' ({options})"
    )
    rows = ROWS // 20
    for file in range(20):
        con.execute(
            f"COPY (SELECT {columns} FROM range({file * rows}, {(file + 1) * rows}) r(i)) TO "
            f"'s3://far/many/{file:02}.parquet' ({options}, ROW_GROUP_SIZE {GROUP_ROWS})"
        )
    con.close()
    yield fake
    fake.stop()


def measure(far: Fake, select: str, threads: int) -> tuple[object, int, dict[str, int]]:
    """What a statement gives, the bytes that it had sent, and the counters behind it."""
    con = scanner(far, threads)
    far.reset()
    found = con.execute(select).fetchall()
    received = sum(read[2] for read in data_requests(far, ".parquet"))
    counters = stats(con)
    con.close()
    return found, received, counters


def wastes_little(received: int, counters: dict[str, int]) -> bool:
    return counters["read_ahead_wasted_bytes"] <= IN_VAIN_MIN + received // 10


QUARTER = GROUP_ROWS * 15


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (f"i < {QUARTER}", QUARTER),
        (f"i BETWEEN {2 * QUARTER} AND {3 * QUARTER - 1}", QUARTER),
        (f"i >= {3 * QUARTER}", QUARTER),
        (f"small < {QUARTER}", QUARTER),
        (f"half < {QUARTER // 8}", QUARTER),
        (f"stamp < TIMESTAMP '2020-01-01' + INTERVAL ({QUARTER}) SECOND", QUARTER),
        (f"day < DATE '2000-01-01' + {QUARTER // 1000}", QUARTER // 1000 * 1000),
        (f"name < format('name of {{:09d}}', {QUARTER})", QUARTER),
        (f"i < 5 * {GROUP_ROWS} OR i >= {ROWS} - 5 * {GROUP_ROWS}", 10 * GROUP_ROWS),
        (f"i IN (5, {QUARTER}, {2 * QUARTER}, {3 * QUARTER + 7})", 4),
    ],
)
def test_a_filter_on_what_the_file_is_sorted_by_wastes_little(
    far: Fake, where: str, rows: int, threads: int
) -> None:
    select = f"SELECT count(*), bit_xor(a), bit_xor(b) FROM {T} WHERE {where}"
    found, received, counters = measure(far, select, threads)
    assert isinstance(found, list) and found[0][0] == rows
    assert wastes_little(received, counters), (received, counters["read_ahead_wasted_bytes"])


def test_the_row_groups_of_a_range_are_fetched_ahead_as_those_of_a_whole_scan(far: Fake) -> None:
    select = f"SELECT bit_xor(a), bit_xor(b) FROM {T} WHERE i BETWEEN {QUARTER} AND {2 * QUARTER}"
    _, _, counters = measure(far, select, 1)
    assert counters["read_ahead_hits"] >= 20
    trips = round_trips(data_requests(far, "t.parquet"))
    assert trips <= 12, "one for each column of the first row group, and a few while it grows"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "select",
    [
        f"SELECT i FROM {T} ORDER BY i LIMIT 10",
        f"SELECT i, a, b FROM {T} ORDER BY i LIMIT 10",
        f"SELECT i, a, b FROM {T} ORDER BY i DESC LIMIT 10",
        f"SELECT i, a, b FROM {T} ORDER BY stamp LIMIT 100",
        f"SELECT * FROM {T} ORDER BY name LIMIT 10",
        f"SELECT * FROM {T} ORDER BY i LIMIT 10",
        f"SELECT i, a, b FROM {T} WHERE i > {QUARTER} ORDER BY i LIMIT 10",
        f"SELECT i, a FROM {T} ORDER BY b LIMIT 10",
    ],
)
def test_a_top_n_wastes_little(far: Fake, select: str, threads: int) -> None:
    _, received, counters = measure(far, select, threads)
    assert wastes_little(received, counters), (received, counters["read_ahead_wasted_bytes"])


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "where",
    [
        f"d.k < {QUARTER}",
        f"d.k > {2 * QUARTER} AND d.v = 0",
        f"d.k BETWEEN {QUARTER} AND {2 * QUARTER}",
        f"d.k IN ({4096 * 7}, {4096 * 200})",
    ],
)
def test_a_join_that_leaves_out_row_groups_wastes_little(
    far: Fake, where: str, threads: int
) -> None:
    select = (
        f"SELECT count(*), bit_xor(a), bit_xor(b) FROM {T} f "
        f"JOIN 's3://far/dimension.parquet' d ON f.i = d.k WHERE {where}"
    )
    _, received, counters = measure(far, select, threads)
    assert wastes_little(received, counters), (received, counters["read_ahead_wasted_bytes"])


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "where", [f"i < {QUARTER}", f"i BETWEEN {2 * QUARTER} AND {3 * QUARTER - 1}"]
)
def test_a_filter_over_many_files_wastes_little(far: Fake, where: str, threads: int) -> None:
    select = f"SELECT count(*), bit_xor(a), bit_xor(b) FROM 's3://far/many/*.parquet' WHERE {where}"
    found, received, counters = measure(far, select, threads)
    assert isinstance(found, list) and found[0][0] == QUARTER
    assert wastes_little(received, counters), (received, counters["read_ahead_wasted_bytes"])


def test_a_prepared_statement_is_right_each_time(far: Fake) -> None:
    con = scanner(far, 2)
    con.execute(f"PREPARE few AS SELECT count(*), bit_xor(b) FROM {T} WHERE i < $1")
    for rows in (GROUP_ROWS, 3 * GROUP_ROWS, ROWS):
        found = con.execute(f"EXECUTE few({rows})").fetchone()
        assert found is not None and found[0] == rows
    con.close()
