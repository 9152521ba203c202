"""What DuckDB 2.0 asks of a file system, and does with it: docs/design/duckdb-2.md.

Where a test holds on DuckDB 1.5 too, it runs there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from harness import (
    IS_DUCKDB_2,
    Fake,
    data_requests,
    in_a_process,
    round_trips,
    scanner,
    start_fake,
    stats,
    wait_until,
)

LATENCY_MS = 200
COLUMNS, ROWS = 4, 1 << 20
COLUMN_BYTES = ROWS * 8
GROUPS = 12
ONE, MANY = "'s3://far/one.parquet'", "'s3://far/many.parquet'"
TEXT = "'s3://far/text.csv'"

# A scan of 256 MB in row groups of 4 MB, in a process that has held nothing before.
SCAN = """
import sys
from pathlib import Path
from harness import connect
from test_many_chunks import resident
con = connect(memory_limit="64MB", threads="4")
con.execute(f"CREATE SECRET s ({sys.argv[1]})")
con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
con.execute("SET enable_progress_bar = false; FROM range(9)").fetchall()
before = resident("VmRSS")
con.execute("SELECT sum(c0) + sum(c1) + sum(c2) + sum(c3) FROM 's3://far/large.parquet'").fetchall()
print(resident("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    """A store some way off: row groups of four columns of 8 MiB, one and twelve; 21 MB of CSV."""
    path = tmp_path_factory.mktemp("far") / "far.parquet"
    random = numpy.random.default_rng(7)
    fake = start_fake("s3", "--latency-ms", str(LATENCY_MS))
    for url, rows, groups in [(ONE, ROWS, 1), (MANY, ROWS // 4, GROUPS)]:
        table = pyarrow.table({f"c{column}": random.random(rows) for column in range(COLUMNS)})
        pyarrow.parquet.write_table(
            table, path, row_group_size=-(-rows // groups), compression="none", use_dictionary=False
        )
        with scanner(fake) as con:
            con.execute(f"COPY (SELECT content FROM read_blob('{path}')) TO {url} (FORMAT blob)")
    with scanner(fake) as con:
        con.execute(f"COPY (SELECT i, md5(i::VARCHAR) FROM range(540000) r(i)) TO {TEXT}")
    yield fake
    fake.stop()


def in_flight(found: list[tuple[int, int, int]]) -> int:
    """How many requests were on their way at once, at most."""
    return max(sum(b <= begin < e for b, e, _ in found) for begin, _, _ in found)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("columns", [1, COLUMNS])
def test_a_large_row_group_takes_a_few_round_trips(far: Fake, threads: int, columns: int) -> None:
    con = scanner(far, threads)
    far.reset()
    sums = " + ".join(f"sum(c{column})" for column in range(columns))
    con.execute(f"SELECT {sums} FROM {ONE}").fetchall()
    found, wasted = data_requests(far, "one.parquet"), stats(con)["read_ahead_wasted_bytes"]
    con.close()
    # DuckDB 2.0 reads blocks of 2 MiB on four threads for each of its own: of 32 MiB that alone
    # would be five round trips by one thread.
    assert round_trips(found) <= 3, found
    assert in_flight(found) >= min(columns, 2), found
    read = columns * COLUMN_BYTES
    assert read <= sum(size for _, _, size in found) <= 1.1 * read + (1 << 20)
    assert len(found) <= 2 + 4 * columns, found
    assert wasted <= read / 10


@pytest.mark.parametrize("columns", [["c1"], ["c0", "c2"]], ids=len)
def test_row_groups_come_in_one_round_trip_by_one_thread(far: Fake, columns: list[str]) -> None:
    con = scanner(far)
    far.reset()
    sums = " + ".join(f"sum({column})" for column in columns)
    con.execute(f"SELECT {sums} FROM {MANY}").fetchall()
    found, wasted = data_requests(far, "many.parquet"), stats(con)["read_ahead_wasted_bytes"]
    con.close()
    # Behind the footer. DuckDB 2.0's own four threads for one take three.
    assert round_trips(found) <= 3, found
    assert in_flight(found) > GROUPS // 2, found
    assert wasted <= sum(size for _, _, size in found) / 10


def test_a_gap_between_named_columns_is_not_read(far: Fake) -> None:
    con = scanner(far)
    # How far the store is, and what a connection to it brings, is known of this.
    con.execute(f"SELECT sum(c3) FROM {MANY}").fetchall()
    far.reset()
    con.execute(f"SELECT sum(c0) + sum(c2) FROM {ONE}").fetchall()
    found = data_requests(far, "one.parquet")
    con.close()
    # The column between them costs less than a round trip. They need none of their own.
    assert sum(size for _, _, size in found) <= 2.1 * COLUMN_BYTES + (1 << 20), found
    assert round_trips(found) <= 3, found


@pytest.mark.parametrize("threads", [1, 4])
def test_a_few_rows_of_a_file_take_its_first_row_group(far: Fake, threads: int) -> None:
    con = scanner(far, threads)
    few = f"SELECT count(h) FROM (SELECT hash(l) AS h FROM {MANY} l LIMIT ?)"
    for _ in range(2):
        far.reset()
        con.execute(few, [10])
        assert con.fetchall() == [(10,)]
        found = data_requests(far, "many.parquet")
        con.execute("CALL penstock_clear_cache()")
        con.execute("SET enable_external_file_cache = false; SET enable_external_file_cache = true")
        # DuckDB 2.0 by itself plans all twelve, of 700 kB each.
        assert sum(size for _, _, size in found) <= 2.5e6, found
        assert round_trips(found) <= 3, found
    con.close()


def test_what_the_user_set_of_fetching_ahead_stays(far: Fake) -> None:
    con = scanner(far, 4)
    few = f"SELECT count(h) FROM (SELECT hash(l) AS h FROM {MANY} l LIMIT 10)"
    depth = "SELECT current_setting('read_ahead_depth')"
    con.execute(few).fetchall()
    if not IS_DUCKDB_2:
        # It fetches nothing ahead itself.
        with pytest.raises(duckdb.Error, match="read_ahead_depth"):
            con.execute(depth)
        return
    assert con.execute(depth).fetchone() == (-1,)
    with pytest.raises(duckdb.Error):
        con.execute("SELECT error(c0::VARCHAR) FROM 's3://far/many.parquet' LIMIT 10").fetchall()
    assert con.execute(depth).fetchone() == (-1,)
    for scope in ("SESSION", "GLOBAL"):
        con.execute(f"SET {scope} read_ahead_depth = 5")
        con.execute(few).fetchall()
        assert con.execute(depth).fetchone() == (5,)
    con.close()


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT octet_length(content) FROM read_blob({TEXT})",
        f"SELECT sum(i) FROM {TEXT}",
        f"SELECT count(*) FROM (FROM {TEXT} LIMIT 10)",
    ],
    ids=["blob", "csv", "limit"],
)
def test_a_text_takes_a_few_round_trips_by_one_thread(far: Fake, statement: str) -> None:
    con = scanner(far)
    far.reset()
    con.execute(statement).fetchall()
    found, wasted = data_requests(far, "text.csv"), stats(con)["read_ahead_wasted_bytes"]
    con.close()
    # DuckDB 2.0 divides it into blocks of 2 MiB, and fetches five of them at a time.
    assert round_trips(found) <= 2, found
    assert wasted == 0


def test_the_prefetcher_is_told_how_far_the_store_is(far: Fake) -> None:
    con = scanner(far)
    if not IS_DUCKDB_2:
        # It asks nobody.
        with pytest.raises(duckdb.Error, match="ParquetPrefetch"):
            con.execute("FROM duckdb_logs_parsed('ParquetPrefetch')").fetchall()
        return
    con.execute("CALL enable_logging('ParquetPrefetch', storage = 'memory')")
    # It reads over a gap that costs less than a round trip. What the link brings is told by the
    # first scan.
    for _ in range(2):
        con.execute(f"SELECT sum(c1) FROM {ONE} WHERE c0 < 0.5").fetchall()
        con.execute("CALL penstock_clear_cache()")
    log = "FROM duckdb_logs_parsed('ParquetPrefetch')"
    gaps = con.execute(f"SELECT accepted_column_gap {log} ORDER BY timestamp").fetchall()
    con.close()
    assert len(gaps) == 2
    # By 100 ms; a connection to another process of this machine brings 10 MB/s at least.
    assert gaps[-1][0] >= 0.1 * 10e6, gaps


def test_what_was_read_of_a_version_is_not_asked_for_again(far: Fake) -> None:
    con = scanner(far)
    query = f"SELECT sum(c2) FROM {ONE}"
    first = con.execute(query).fetchall()
    far.reset()
    assert con.execute(query).fetchall() == first
    assert data_requests(far, "one.parquet") == []
    con.close()


def test_sizes_are_told_without_a_read(far: Fake) -> None:
    con = scanner(far)
    content = con.execute(f"SELECT octet_length(content), size FROM read_blob({ONE})").fetchone()
    con.close()
    con = scanner(far)
    far.reset()
    told = con.execute(f"SELECT size FROM read_blob({ONE})").fetchone()
    assert content is not None and told == content[1:] and content[0] == content[1]
    assert sum(size for _, _, size in data_requests(far, "one.parquet")) <= 1 << 20
    con.close()


def operations(far: Fake) -> list[str]:
    return [request["operation"] for request in far.requests()]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_copy_that_fails_aborts_what_it_wrote(far: Fake, kind: str) -> None:
    con = scanner(far)
    far.reset()
    rows = "SELECT hash(i) AS h, if(i = 2999999, error('no more'), i) AS i FROM range(3000000) t(i)"
    with pytest.raises(duckdb.Error, match="no more"):
        con.execute(f"COPY ({rows}) TO 's3://far/failed.{kind}'")
    # The statement fails at once; its upload is aborted behind it.
    wait_until(lambda: "AbortMultipartUpload" in operations(far), "the abort")
    assert operations(far).count("CreateMultipartUpload") == 1
    assert far.unfinished_uploads("s3://far/failed.") == []
    assert con.execute("FROM glob('s3://far/failed.*')").fetchall() == []
    con.close()


def test_duckdbs_own_metrics_count_our_bytes(far: Fake) -> None:
    con = scanner(far)
    text = con.execute(f"EXPLAIN (ANALYZE, FORMAT json) SELECT sum(c3) FROM {ONE}").fetchall()
    con.close()
    told = json.loads(text[0][1])
    read = told["io"] if IS_DUCKDB_2 else told
    assert COLUMN_BYTES <= read["total_bytes_read"] <= 1.2 * COLUMN_BYTES + (1 << 20), read


def test_a_scan_keeps_within_the_limits_of_memory(far: Fake) -> None:
    with scanner(far) as con:
        columns = ", ".join(f"random() AS c{column}" for column in range(COLUMNS))
        options = "FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 122880"
        con.execute(
            f"COPY (SELECT {columns} FROM range(8000000)) TO 's3://far/large.parquet' ({options})"
        )
    # DuckDB's and ours, of 64 MB each; what the libraries of a process take, and threads.
    assert int(in_a_process(SCAN, far.secret)) <= (64 << 20) + (64 << 20) + (40 << 20)
