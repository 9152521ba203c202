"""Globs of many pages: read after the first, complete at the end, and never taken for less."""

from __future__ import annotations

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake, scanner, stats

FILES = 40
PAGE = 5
ROWS = 100
LISTS = {"s3": "ListObjectsV2", "azure": "ListBlobs"}


@pytest.fixture
def root(con: duckdb.DuckDBPyConnection, store: Fake) -> str:
    """A directory of small files, listed in small pages."""
    root = store.url("many/pages")
    for number in range(FILES):
        query = f"SELECT i, {number} AS file FROM range({ROWS}) t(i)"
        con.execute(f"COPY ({query}) TO '{root}/{number:02}.parquet'")
    con.execute(f"SET penstock_list_page_size = {PAGE}")
    con.execute("CALL penstock_clear_cache()")
    store.reset()
    return root


def lists(store: Fake) -> int:
    return sum(request["operation"] == LISTS[store.kind] for request in store.requests())


def test_the_first_rows_take_few_pages(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    """DuckDB wants to know 500 files for its estimates, and one page more is on its way."""
    root = store.url("many/more")
    query = "SELECT i, i AS file FROM range(1200) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT parquet, PARTITION_BY (file))")
    con.execute("SET penstock_list_page_size = 100; SET threads = 1")
    con.execute("CALL penstock_clear_cache()")
    store.reset()
    source = f"read_parquet('{root}/*/*.parquet', hive_partitioning = false)"
    assert len(con.execute(f"SELECT i FROM {source} LIMIT 1").fetchall()) == 1
    # DuckDB 2.0 wants to know all of them.
    assert 5 <= lists(store) <= (13 if IS_DUCKDB_2 else 8)
    wanted = (1200, sum(range(1200)))
    assert con.execute(f"SELECT count(*), sum(i) FROM {source}").fetchone() == wanted


def test_what_a_statement_writes_is_not_in_what_it_reads(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    root = store.url("many/same")
    query = "SELECT i, i AS file FROM range(700) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT parquet, PARTITION_BY (file))")
    con.execute("SET penstock_list_page_size = 20; SET threads = 1")
    con.execute("CALL penstock_clear_cache()")
    source = f"read_parquet('{root}/*/*.parquet', hive_partitioning = false)"
    options = "FORMAT parquet, FILE_SIZE_BYTES '1KB', ROW_GROUP_SIZE 20"
    con.execute(f"COPY (SELECT i FROM {source}) TO '{root}/more' ({options})")
    wanted = (1400, 2 * sum(range(700)))
    assert con.execute(f"SELECT count(*), sum(i) FROM {source}").fetchone() == wanted


@pytest.mark.parametrize("threads", [1, 8])
def test_all_files_are_read_once(
    threads: int, con: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    con.execute(f"SET threads = {threads}")
    for pattern in [f"{root}/*.parquet", f"{root}/**", f"{root}/**/*.parquet"]:
        for options in ["", ", union_by_name = true", ", filename = true"]:
            source = f"read_parquet('{pattern}'{options})"
            query = f"SELECT count(*), count(DISTINCT file), sum(i) FROM {source}"
            wanted = (FILES * ROWS, FILES, FILES * sum(range(ROWS)))
            assert con.execute(query).fetchone() == wanted, f"{pattern}{options}"
    names = con.execute(f"SELECT file FROM glob('{root}/*') ORDER BY ALL").fetchall()
    assert [name for (name,) in names] == [f"{root}/{number:02}.parquet" for number in range(FILES)]
    assert lists(store) >= FILES // PAGE


def got(store: Fake) -> tuple[int, int]:
    """GETs of objects, and the bytes of their answers."""
    rows = [row for row in store.requests() if row["method"] == "GET"]
    rows = [row for row in rows if row["operation"] != LISTS[store.kind]]
    return len(rows), sum(row["bytes_out"] for row in rows)


def test_a_count_of_small_files_moves_their_footers(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    """But for a few that are tried whole."""
    root = store.url("many/small")
    query = "SELECT i, hash(i) AS h, i % 60 AS file FROM range(600000) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT parquet, PARTITION_BY (file))")
    con.execute("SET threads = 1")
    if IS_DUCKDB_2:
        # It reads a file whole that fits into one block of its cache.
        con.execute("SET GLOBAL external_file_cache_remote_max_block_size = 16384")
    source = f"read_parquet('{root}/*/*.parquet', hive_partitioning = false)"
    for wanted, query in [(16 << 10, "count(*)"), (150 << 10, "sum(i) + sum(h)")]:
        con.execute("CALL penstock_clear_cache()")
        store.reset()
        con.execute(f"SELECT {query} FROM {source}").fetchall()
        _, moved = got(store)
        assert moved <= 60 * (wanted + 1000) + (1 << 20), query


def test_text_files_take_a_request_each(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    """Also those that are a little longer than what opening fetches."""
    root = store.url("many/text")
    query = "SELECT i, hash(i) AS h, i % 20 AS file FROM range(240000) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT csv, PARTITION_BY (file))")
    con.execute("SET threads = 1; CALL penstock_clear_cache()")
    store.reset()
    source = f"read_csv('{root}/*/*.csv', hive_partitioning = false)"
    row = con.execute(f"SELECT count(*), sum(i) FROM {source}").fetchone()
    assert row == (240000, sum(range(240000)))
    requests, moved = got(store)
    assert 20 * (256 << 10) < moved < 20 * (1 << 20)
    assert requests <= 22


def test_files_keep_their_order(con: duckdb.DuckDBPyConnection, root: str) -> None:
    rows = con.execute(
        f"SELECT DISTINCT file FROM (SELECT file FROM '{root}/*.parquet')"
    ).fetchall()
    assert len(rows) == FILES
    first = con.execute(f"SELECT file FROM '{root}/*.parquet'").fetchall()
    assert [file for (file,) in first] == [number for number in range(FILES) for _ in range(ROWS)]


def test_pages_may_be_asked_for_by_a_later_statement(
    con: duckdb.DuckDBPyConnection, root: str
) -> None:
    con.execute(f"PREPARE all_rows AS SELECT count(*) FROM '{root}/*.parquet' WHERE i < $1")
    con.execute("SELECT 1").fetchall()
    for least in [1, ROWS]:
        assert con.execute(f"EXECUTE all_rows({least})").fetchone() == (FILES * least,)
    relation = con.sql(f"FROM '{root}/*.parquet'")
    con.execute("SELECT 2").fetchall()
    assert len(relation.fetchall()) == FILES * ROWS


def test_a_page_that_fails_is_an_error_and_not_the_end(
    con: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    store.arm(f"status=403,op={LISTS[store.kind]},nth=3-")
    with pytest.raises(duckdb.Error, match="403"):
        con.execute(f"SELECT count(*) FROM '{root}/*.parquet'").fetchall()
    store.reset()
    query = f"SELECT count(*) FROM '{root}/*.parquet'"
    assert con.execute(query).fetchone() == (FILES * ROWS,)


def test_ten_thousand_files_take_a_request_each_and_then_none(fakes: dict[str, Fake]) -> None:
    """And neither connections nor memory beyond their limits."""
    count, store = 10_000, fakes["s3"]
    writer = scanner(store, threads=2)
    query = f"SELECT i, i AS file FROM range({count}) t(i)"
    options = "FORMAT parquet, PARTITION_BY (file), OVERWRITE"
    writer.execute(f"COPY ({query}) TO 's3://many/thousands' ({options})")
    writer.close()
    store.reset()
    con = scanner(store, threads=4)
    con.execute("SET penstock_cache_validation = 'never'")
    source = "read_parquet('s3://many/thousands/*/*.parquet', hive_partitioning = false)"
    wanted = (count, sum(range(count)))
    assert con.execute(f"SELECT count(*), sum(i) FROM {source}").fetchone() == wanted
    cold = stats(con)
    pages = -(-count // 1000)
    assert count + pages <= cold["requests"] <= count * 101 // 100 + pages
    assert cold["connections"] <= 64 + 16
    assert cold["read_ahead_wasted_bytes"] == 0
    assert cold["memory_held_bytes_now"] <= (1 << 30) // 16
    assert con.execute(f"SELECT count(*), sum(i) FROM {source}").fetchone() == wanted
    assert stats(con)["requests"] == cold["requests"]
    con.close()
