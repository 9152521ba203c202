"""Results that are closed before they were taken whole: what was ahead of them is bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake, read_in_turn, scanner, start_fake, stats, wait_until

GROUPS = 60
GROUP_ROWS = 20480
# Longer than what DuckDB decodes before anybody takes a row.
LONG_GROUP_ROWS = 100_352
IN_VAIN_MIN = 256 << 10
ONE_STEP = 16 << 20
FORMS = {
    "t.parquet": f"FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE {GROUP_ROWS}",
    "t.csv": "FORMAT csv",
    "t.csv.gz": "FORMAT csv",
}


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 30 ms to begin, with the same rows in three forms."""
    fake = start_fake("s3", "--latency-ms", "30")
    con = scanner(fake)
    rows = f"(SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range({GROUPS * GROUP_ROWS}) t(i))"
    for name, options in FORMS.items():
        con.execute(f"COPY {rows} TO 's3://far/{name}' ({options})")
    con.execute(
        "COPY (SELECT i, hash(i) AS a FROM range(800000) t(i)) TO 's3://far/long.parquet' "
        f"(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE {LONG_GROUP_ROWS})"
    )
    con.close()
    yield fake
    fake.stop()


def at_rest(far: Fake, con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The counters, once nothing comes any more."""
    seen = [-1, -2]

    def is_still() -> bool:
        time.sleep(0.1)
        seen.append(stats(con)["bytes_read"] + len(far.requests()))
        return seen[-1] == seen[-2] == seen[-3]

    wait_until(is_still, "the end of all requests")
    return stats(con)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("taken", [1, 50_000, 400_000])
@pytest.mark.parametrize("name", list(FORMS))
def test_what_is_in_vain_of_a_result_that_is_closed(
    far: Fake, name: str, taken: int, threads: int
) -> None:
    con = scanner(far, threads)
    watcher = con.cursor()
    con.execute("SET enable_external_file_cache = false")
    con.execute(f"SELECT i, a, b FROM 's3://far/{name}'")
    assert len(con.fetchmany(taken)) == taken
    # Another statement on a connection closes the result that is open there.
    con.execute("SELECT 1").fetchall()
    found = at_rest(far, watcher)
    wasted, came = found["read_ahead_wasted_bytes"], found["bytes_read"]
    if name == "t.parquet":
        # As much is ahead of a scan as it has read.
        assert wasted <= came - wasted + IN_VAIN_MIN, (wasted, came)
        assert IS_DUCKDB_2 or came < GROUPS * GROUP_ROWS * 24, "all of it"
    else:
        assert wasted <= came / 10 + ONE_STEP, (wasted, came)
    # A sixteenth of the limit is kept of opened objects.
    assert found["memory_held_bytes_now"] <= (1 << 30) // 16
    con.close()
    watcher.close()


@pytest.mark.parametrize("threads", [1, 4])
def test_few_rows_are_taken_and_then_nothing_for_a_while(far: Fake, threads: int) -> None:
    con = scanner(far, threads)
    watcher = con.cursor()
    con.execute("SELECT * FROM 's3://far/long.parquet'")
    assert con.fetchone() is not None
    # What is on its way comes: nothing is, before the scan goes on to another row group.
    found = at_rest(far, watcher)
    con.execute("SELECT 1").fetchall()
    after = at_rest(far, watcher)
    if IS_DUCKDB_2:
        # Its own threads go on to others, and blocks of theirs may follow each other.
        in_vain_max = IN_VAIN_MIN + after["bytes_read"] / 10
        assert after["read_ahead_wasted_bytes"] <= in_vain_max, after
    else:
        assert found["read_ahead_bytes"] == 0, found
        assert after["read_ahead_wasted_bytes"] == 0
    con.close()
    watcher.close()


def test_whoever_goes_on_taking_rows_has_columns_fetched_ahead(far: Fake) -> None:
    con = scanner(far)
    read_in_turn(con)
    assert len(con.execute("SELECT * FROM 's3://far/long.parquet'").fetchall()) == 800_000
    found = stats(con)
    assert found["read_ahead_hits"] >= 800_000 // LONG_GROUP_ROWS - 3
    assert found["read_ahead_wasted_bytes"] == 0
    con.close()


def test_a_statement_that_takes_all_rows_itself_is_no_such_result(far: Fake) -> None:
    con = scanner(far)
    read_in_turn(con)
    watcher = con.cursor()
    # All columns by one read, of which the plan tells nothing since it filters.
    con.execute("SELECT sum(i), sum(a % 7) FROM 's3://far/long.parquet' WHERE i >= 0").fetchall()
    whole = stats(watcher)["read_ahead_hits"]
    assert whole >= 800_000 // LONG_GROUP_ROWS - 2
    con.close()
    watcher.close()
