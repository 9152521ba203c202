"""Results that are closed before they were taken whole: what was ahead of them is bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator

import duckdb
import pytest
from harness import Fake, scanner, start_fake, stats, wait_until

GROUPS = 60
GROUP_ROWS = 20480
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
        assert came < GROUPS * GROUP_ROWS * 24, "all of it"
    else:
        assert wasted <= came / 10 + ONE_STEP, (wasted, came)
    # A sixteenth of the limit is kept of opened objects.
    assert found["memory_held_bytes_now"] <= (1 << 30) // 16
    con.close()
    watcher.close()
