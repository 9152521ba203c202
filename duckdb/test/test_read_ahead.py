"""What DuckDB's scans of distant files fetch ahead: requests, hits and bytes in vain."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import duckdb
import pytest
from harness import (
    Fake,
    data_requests,
    read_in_turn,
    round_trips,
    scanner,
    start_fake,
    stats,
    wait_until,
)

GROUPS = 20
ROWS = GROUPS * 20480


def unordered(store: Fake, threads: int) -> duckdb.DuckDBPyConnection:
    con = scanner(store, threads)
    con.execute("SET preserve_insertion_order = false")
    return con


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 30 ms to begin, with a file of twenty row groups."""
    fake = start_fake("s3", "--latency-ms", "30")
    con = unordered(fake, 1)
    con.execute(
        "COPY (SELECT i, hash(i) AS a, hash(i + 1) AS b, hash(i + 2) AS c, i::VARCHAR AS d "
        f"FROM range({ROWS}) t(i)) TO 's3://far/t.parquet' "
        "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 20480)"
    )
    yield fake
    fake.stop()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "what", ["sum(a), sum(c)", "max(i), sum(a), sum(b), sum(c), max(d)"], ids=["some", "all"]
)
def test_a_scan_finds_its_row_groups_fetched(far: Fake, threads: int, what: str) -> None:
    con = unordered(far, threads)
    con.execute(f"SELECT {what} FROM 's3://far/t.parquet'").fetchall()
    found = stats(con)
    assert found["read_ahead_hits"] >= GROUPS - 3 * threads
    # DuckDB asks for the last row group without what it got beside the footer.
    assert found["read_ahead_wasted_bytes"] < 65_536
    con.close()


def test_a_footer_longer_than_what_opening_fetches_is_followed(far: Fake) -> None:
    con = unordered(far, 1)
    names = ", ".join(f"i + {column} AS c{column}" for column in range(100))
    con.execute(
        f"COPY (SELECT {names} FROM range({60 * 2048}) t(i)) TO 's3://far/wide.parquet' "
        "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 2048)"
    )
    con.close()
    con = unordered(far, 1)
    far.reset()
    # DuckDB's external file cache asks for the part of the footer that it has not.
    con.execute("SELECT sum(c1), sum(c50), sum(c99) FROM 's3://far/wide.parquet'").fetchall()
    found = stats(con)
    requests = data_requests(far, "wide.parquet")
    # Sixty row groups of three columns.
    assert found["read_ahead_hits"] >= 160
    assert found["read_ahead_wasted_bytes"] == 0
    assert round_trips(requests) <= 30
    con.close()


@pytest.mark.parametrize("groups", [2, 5, 10])
@pytest.mark.parametrize(
    "what", ["sum(a), sum(c)", "max(i), sum(a), sum(b), sum(c), max(d)"], ids=["some", "all"]
)
def test_small_files_of_several_row_groups_are_followed(far: Fake, groups: int, what: str) -> None:
    files = 20
    con = unordered(far, 1)
    for file in range(files):
        con.execute(
            "COPY (SELECT i, hash(i) AS a, hash(i + 1) AS b, hash(i + 2) AS c, i::VARCHAR AS d "
            f"FROM range({groups * 4096}) t(i)) TO 's3://far/{groups}/{file}.parquet' "
            "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 4096)"
        )
    con.close()
    con = unordered(far, 1)
    far.reset()
    con.execute(f"SELECT {what} FROM 's3://far/{groups}/*.parquet'").fetchall()
    requests = data_requests(far, f"/{groups}/")
    # The external file cache widens the read of the last row group but one up to the end of the
    # file: without following it each file waits for each of its row groups.
    assert round_trips(requests) <= files // 2, requests
    received = sum(size for _, _, size in requests)
    assert stats(con)["read_ahead_wasted_bytes"] <= received / 10
    con.close()


def test_a_limit_in_the_first_row_group_receives_no_other(far: Fake) -> None:
    con = unordered(far, 1)
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
    con = unordered(far, 1)
    # The last row group but one: its statistics leave it alone.
    con.execute(
        f"SELECT sum(a), sum(c) FROM 's3://far/t.parquet' WHERE i BETWEEN {ROWS - 30000} "
        f"AND {ROWS - 25000}"
    ).fetchall()
    assert stats(con)["read_ahead_bytes"] == 0
    con.close()


def test_an_interrupted_scan_leaves_no_request_running(far: Fake) -> None:
    con = unordered(far, 1)
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


@pytest.fixture(scope="module")
def distant() -> Iterator[Fake]:
    """A store whose answers take 100 ms to begin, with files that are read front to back."""
    fake = start_fake("s3", "--latency-ms", "100")
    con = unordered(fake, 1)
    for name, rows, options in [
        ("t.csv", 3_000_000, "HEADER"),
        ("t.csv.gz", 2_000_000, "HEADER"),
        ("t.json", 2_000_000, "FORMAT json"),
        ("t.bin", 7_000_000, "FORMAT csv"),
    ]:
        con.execute(
            f"COPY (SELECT i, hash(i) AS a, md5(i::VARCHAR) AS b FROM range({rows}) t(i)) "
            f"TO 's3://distant/{name}' ({options})"
        )
    con.close()
    yield fake
    fake.stop()


@pytest.mark.parametrize(
    ("name", "sql", "expected", "hits_min"),
    [
        ("t.csv", "SELECT count(*), sum(i) FROM '{}'", (3_000_000, 4499998500000), 2),
        ("t.csv.gz", "SELECT count(*), sum(i) FROM '{}'", (2_000_000, 1999999000000), 2),
        ("t.json", "SELECT count(*), sum(i) FROM '{}'", (2_000_000, 1999999000000), 1),
        (
            "t.bin",
            "SELECT count(*), max(octet_length(content)) > 400000000 FROM read_blob('{}')",
            (1, True),
            2,
        ),
    ],
)
def test_what_is_read_front_to_back_is_asked_for_before_it_is_needed(
    distant: Fake, name: str, sql: str, expected: tuple[int, ...], hits_min: int
) -> None:
    con = unordered(distant, 1)
    con.execute("SET enable_external_file_cache = false")
    distant.reset()
    row = con.execute(sql.format(f"s3://distant/{name}")).fetchone()
    assert row == expected
    requests = data_requests(distant, name)
    found = stats(con)
    assert found["read_ahead_hits"] >= hits_min, requests
    received = sum(size for _, _, size in requests)
    assert found["read_ahead_wasted_bytes"] <= received / 10
    con.close()


def test_a_limit_in_the_first_step_of_a_csv_receives_little_of_the_next(distant: Fake) -> None:
    con = unordered(distant, 1)
    distant.reset()
    con.execute("SELECT i FROM 's3://distant/t.csv' LIMIT 5").fetchall()
    con.close()
    found = data_requests(distant, "t.csv")
    # DuckDB reads 32 MB. Beside a tenth of that: what the sockets of both sides hold.
    assert sum(size for _, _, size in found) <= 32_000_000 * 1.1 + (12 << 20), found


def test_an_interrupted_read_front_to_back_leaves_no_request_running(distant: Fake) -> None:
    con = unordered(distant, 1)
    # Beside each other DuckDB 2.0 may read the parts of a step out of turn, which is no run.
    read_in_turn(con)
    # The opening, the first step in one request, and the next one, which does not come.
    con.execute("SET penstock_parallel_read_max_fanout = 1")
    distant.reset()
    distant.arm("stall,op=GetObject,nth=3-")
    failed: list[BaseException] = []

    def read() -> None:
        try:
            con.execute("SELECT octet_length(content) FROM read_blob('s3://distant/t.bin')")
        except duckdb.Error as error:
            failed.append(error)

    watcher = con.cursor()
    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: stats(watcher)["read_ahead_bytes"] > 0, "asking for the next step")
    con.interrupt()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert len(failed) == 1
    wait_until(lambda: stats(watcher)["memory_held_bytes_now"] <= 1 << 20, "giving memory back")
    distant.reset()
    con.close()
