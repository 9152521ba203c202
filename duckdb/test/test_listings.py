"""Globs that were listed before: no request while that counts, and never a stale one of our own."""

from __future__ import annotations

import duckdb
import pytest
from harness import AZURE_KEY, Fake, scanner, stats

FILES = 12
ROWS = 50
LISTS = {"s3": "ListObjectsV2", "azure": "ListBlobs"}


@pytest.fixture
def root(con: duckdb.DuckDBPyConnection, store: Fake) -> str:
    """Partitions of small files, written by another database."""
    root = store.url("listed/t")
    query = f"SELECT i, i % {FILES} AS p FROM range({FILES * ROWS}) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT parquet, PARTITION_BY (p), OVERWRITE)")
    store.reset()
    return root


@pytest.fixture
def reader(store: Fake) -> duckdb.DuckDBPyConnection:
    return scanner(store)


def rows(con: duckdb.DuckDBPyConnection, pattern: str) -> int:
    row = con.execute(f"SELECT count(i) FROM read_parquet('{pattern}')").fetchone()
    assert row
    return int(row[0])


def lists(store: Fake) -> int:
    listed = LISTS[store.kind]
    count = len([request for request in store.requests() if request["operation"] == listed])
    store.reset()
    return count


@pytest.mark.parametrize("pattern", ["*/*.parquet", "**", "p=1*/*.parquet"])
def test_a_warm_glob_costs_no_request(
    pattern: str, reader: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    reader.execute("SET penstock_cache_validation = 'never'")
    cold = rows(reader, f"{root}/{pattern}")
    assert store.requests()
    store.reset()
    assert rows(reader, f"{root}/{pattern}") == cold
    assert store.requests() == []
    assert stats(reader)["listing_hits"] >= 1
    kept = "SELECT count(*), sum(cached_bytes) FROM penstock_cache() WHERE cache = 'listing'"
    count, size = reader.execute(kept).fetchall()[0]
    assert count == 1
    assert size > 0
    reader.execute("CALL penstock_clear_cache()")
    assert reader.execute(kept).fetchall()[0][0] == 0
    assert rows(reader, f"{root}/{pattern}") == cold
    assert lists(store) == 1


def test_policies(reader: duckdb.DuckDBPyConnection, store: Fake, root: str) -> None:
    source = f"read_parquet('{root}/*/*.parquet')"
    twice = f"SELECT count(*) FROM {source} a JOIN {source} b USING (i)"
    for policy, first, second in [("always", 2, 2), ("query", 1, 1), ("never", 1, 0)]:
        reader.execute("CALL penstock_clear_cache()")
        reader.execute(f"SET penstock_cache_validation = '{policy}'")
        store.reset()
        for wanted in [first, second]:
            assert reader.execute(twice).fetchone() == (FILES * ROWS,)
            assert lists(store) == wanted, policy


def test_what_is_written_or_removed_here_is_seen_at_once(
    reader: duckdb.DuckDBPyConnection, root: str
) -> None:
    reader.execute("SET penstock_cache_validation = 'never'")
    pattern = f"{root}/*/*.parquet"
    all_rows = FILES * ROWS
    assert rows(reader, pattern) == all_rows
    reader.execute(f"COPY (SELECT 7 AS i) TO '{root}/p=x/a.parquet'")
    assert rows(reader, pattern) == all_rows + 1
    query = "SELECT 7 AS i, 'x' AS p FROM range(10)"
    options = "FORMAT parquet, PARTITION_BY (p), APPEND"
    reader.execute(f"COPY ({query}) TO '{root}' ({options})")
    assert rows(reader, pattern) == all_rows + 11
    query = "SELECT 7 AS i, 'y' AS p FROM range(10)"
    options = "FORMAT parquet, PARTITION_BY (p), OVERWRITE"
    reader.execute(f"COPY ({query}) TO '{root}' ({options})")
    assert rows(reader, pattern) == 10


def test_overwriting_removes_what_others_wrote_meanwhile(
    con: duckdb.DuckDBPyConnection, reader: duckdb.DuckDBPyConnection, root: str
) -> None:
    reader.execute("SET penstock_cache_validation = 'never'")
    pattern = f"{root}/*/*.parquet"
    assert rows(reader, pattern) == FILES * ROWS
    con.execute(f"COPY (SELECT 7 AS i) TO '{root}/p=0/of_others.parquet'")
    query = "SELECT 7 AS i, 'y' AS p FROM range(10)"
    options = "FORMAT parquet, PARTITION_BY (p), OVERWRITE"
    reader.execute(f"COPY ({query}) TO '{root}' ({options})")
    con.execute("CALL penstock_clear_cache()")
    assert rows(con, pattern) == rows(reader, pattern) == 10


def test_what_is_overwritten_is_removed_by_the_secret_of_each_name(
    con: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    apart = f"{root}/p=0/"
    wrong = store.secret.replace("SECRET 'test'", "SECRET 'wrong'").replace(AZURE_KEY, "d3Jvbmc=")
    assert wrong != store.secret
    # Of the first name that is removed and of the last.
    for scope in [apart, f"{root}/p=9/"]:
        con.execute(f"COPY (SELECT 7 AS i) TO '{scope}more.parquet'")
        con.execute(f"CREATE OR REPLACE SECRET apart ({wrong}, SCOPE '{scope}')")
        options = "FORMAT parquet, PARTITION_BY (p), OVERWRITE"
        with pytest.raises(duckdb.Error, match="403"):
            con.execute(f"COPY (SELECT 7 AS i, 'z' AS p) TO '{root}' ({options})")
        con.execute("DROP SECRET apart")
        con.execute("CALL penstock_clear_cache()")
        assert rows(con, f"{scope}*.parquet") > 0


def test_a_glob_that_finds_nothing_has_asked(
    con: duckdb.DuckDBPyConnection, reader: duckdb.DuckDBPyConnection, root: str
) -> None:
    reader.execute("SET penstock_cache_validation = 'never'")
    assert rows(reader, f"{root}/**") == FILES * ROWS
    with pytest.raises(duckdb.IOException, match="No files found"):
        rows(reader, f"{root}/*/late.parquet")
    con.execute(f"COPY (SELECT 7 AS i) TO '{root}/p=0/late.parquet'")
    assert rows(reader, f"{root}/*/late.parquet") == 1


def test_a_prepared_statement_outlives_a_listing_that_failed(
    con: duckdb.DuckDBPyConnection, reader: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    root, files = store.url("listed/many"), 800
    query = f"SELECT i, i AS file FROM range({files}) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT parquet, PARTITION_BY (file), OVERWRITE)")
    reader.execute("SET penstock_list_page_size = 50; SET penstock_cache_validation = 'always'")
    source = f"read_parquet('{root}/*/*.parquet', hive_partitioning = false)"
    prepare = f"PREPARE few AS SELECT count(i) FROM {source} WHERE i >= $1"
    # Where its first page fails, it is not prepared; it may be later.
    store.arm(f"status=403,op={LISTS[store.kind]},nth=1")
    with pytest.raises(duckdb.Error, match="403"):
        reader.execute(prepare)
    store.reset()
    reader.execute(prepare)
    # DuckDB wants to know 500 files for its estimates; the others are listed when it is executed.
    store.arm(f"status=403,op={LISTS[store.kind]},nth=1-")
    for _ in range(2):
        with pytest.raises(duckdb.Error, match=r"list.*403"):
            reader.execute("EXECUTE few(0)")
    store.reset()
    for least in [0, 100]:
        assert reader.execute(f"EXECUTE few({least})").fetchone() == (files - least,)


POLICIES = [
    "penstock_cache_validation = 'time'",
    "penstock_metadata_validity_ms = 0",
    "penstock_cache_validation = 'query'",
    "penstock_cache_validation = 'never'",
]
# What a listing tells of its files.
TOLD = [
    "SELECT sum(size), max(epoch(last_modified)) FROM read_blob('{}')",
    "SELECT sum(size), max(epoch(last_modified)) FROM read_text('{}')",
    "SELECT count(filename) FROM read_blob('{}')",
    "SELECT count(*) FROM read_text('{}')",
    "SELECT count(*) FROM glob('{}')",
]
# What takes bytes of each of them.
READ = [
    "SELECT count(content) FROM read_blob('{}')",
    "SELECT sum(i) FROM read_parquet('{}')",
    "SELECT count(DISTINCT filename) FROM read_parquet('{}', filename = true)",
    "SELECT sum(i) FROM read_parquet('{}', union_by_name = true)",
    "SELECT count(*) FROM parquet_file_metadata('{}')",
    "SELECT count(*) FROM parquet_metadata('{}')",
    "SELECT count(*) FROM parquet_schema('{}')",
]


def asked(store: Fake) -> list[str]:
    """The methods of all requests but listings."""
    listed = LISTS[store.kind]
    found = [it["method"] for it in store.requests() if it["operation"] != listed]
    store.reset()
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_listing_told_is_not_asked_again(
    policy: str, con: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    con.execute(f"COPY (SELECT 7 AS i) TO '{store.url('listed/one/a.csv')}'")
    texts = store.url("listed/texts")
    query = f"SELECT i, i % {FILES} AS p FROM range({FILES * ROWS}) t(i)"
    con.execute(f"COPY ({query}) TO '{texts}' (FORMAT csv, PARTITION_BY (p), OVERWRITE)")
    store.reset()
    one = store.url("listed/one/*.csv")
    shapes = [(query.format(f"{texts}/*/*.csv"), 0) for query in TOLD]
    shapes += [(query.format(one), 0) for query in TOLD]
    shapes += [(query.format(f"{root}/*/*.parquet"), FILES) for query in READ]
    for count, source in [(FILES, f"{texts}/*/*.csv"), (1, one)]:
        shapes += [
            (f"SELECT count(*) FROM read_csv('{source}')", count),
            (f"SELECT count(DISTINCT filename) FROM read_csv('{source}', filename = true)", count),
        ]
    shapes.append((f"SELECT count(*) FROM sniff_csv('{one}')", 1))
    for shape, gets in shapes:
        reader = scanner(store)
        reader.execute(f"SET {policy}")
        cold = reader.execute(shape).fetchall()
        assert asked(store) == ["GET"] * gets, shape
        # The bytes are here; a listing tells that they are still those of the object.
        assert reader.execute(shape).fetchall() == cold
        assert asked(store) == [], shape
        reader.close()


def test_size_and_time_of_thousands_of_files_are_one_listing(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    root, files = store.url("listed/thousands"), 2000
    con.execute("SET partitioned_write_max_open_files = 5000")
    query = f"SELECT i, i AS p FROM range({files}) t(i)"
    con.execute(f"COPY ({query}) TO '{root}' (FORMAT csv, PARTITION_BY (p), OVERWRITE)")
    reader = scanner(store, threads=4)
    store.reset()
    query = f"SELECT count(*), count(size), count(last_modified) FROM read_blob('{root}/*/*')"
    assert reader.execute(query).fetchone() == (files, files, files)
    assert asked(store) == []
