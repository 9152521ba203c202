"""Two outputs of one statement that are one object: refused before anything is published."""

from __future__ import annotations

import zlib

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake

DEFAULT = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture(params=["true", "false"], autouse=True)
def overlap(request: pytest.FixtureRequest, con: duckdb.DuckDBPyConnection) -> None:
    """With and without overlapping uploads."""
    con.execute(f"SET penstock_upload_overlap_enabled = {request.param}")


@pytest.fixture
def root(store: Fake, request: pytest.FixtureRequest) -> str:
    """A directory that no other test has."""
    return store.url(f"one-key/{zlib.crc32(request.node.nodeid.encode()):x}")


def placed(store: Fake) -> list[str]:
    """Requests that would change an object."""
    return [r["operation"] for r in store.requests() if r["method"] in {"PUT", "POST", "DELETE"}]


@pytest.mark.parametrize("mode", ["", ", OVERWRITE_OR_IGNORE", ", OVERWRITE"])
def test_null_and_the_text_that_stands_for_it_are_refused(
    con: duckdb.DuckDBPyConnection, store: Fake, root: str, mode: str
) -> None:
    """DuckDB 2.0 writes the text to a key of its own."""
    copy = (
        f"COPY (SELECT * FROM (VALUES (1, NULL), (2, '{DEFAULT}'), (3, 'x')) t(i, p)) "
        f"TO '{root}' (FORMAT parquet, PARTITION_BY (p){mode})"
    )
    if IS_DUCKDB_2:
        con.execute(copy)
        rows = con.execute(f"SELECT i, p FROM '{root}/**/*.parquet' ORDER BY i").fetchall()
        assert rows == [(1, None), (2, DEFAULT), (3, "x")]
        return
    with pytest.raises(duckdb.Error) as raised:
        con.execute(copy)
    told = str(raised.value)
    assert f"{root}/p={DEFAULT}/data_0.parquet" in told
    assert "two outputs of this statement" in told
    assert "NULL" in told
    assert placed(store) == []


@pytest.mark.parametrize(
    "values",
    [
        "(['a', 'b']), (['a, b'])",
        "('a'), ('A')",
        "('\u00e9'), ('e\u0301')",
        "('a/b'), ('a%2Fb')",
        "(NULL), ('NULL')",
        "(0.0::DOUBLE), (-0.0::DOUBLE)",
    ],
)
def test_values_that_look_alike_lose_no_row(
    con: duckdb.DuckDBPyConnection, root: str, values: str
) -> None:
    con.execute(
        f"COPY (SELECT 1 AS i, p FROM (VALUES {values}) t(p)) TO '{root}' "
        "(FORMAT parquet, PARTITION_BY (p))"
    )
    found = con.execute(f"SELECT count(*) FROM '{root}/**/*.parquet'").fetchone()
    assert found == (2,)


def test_null_in_a_partition_that_was_closed_early_is_refused(
    con: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    con.execute("SET threads = 1; SET partitioned_write_max_open_files = 1")
    con.execute("SET partitioned_write_flush_threshold = 2048")
    copy = (
        f"COPY (SELECT i, CASE WHEN i < 50000 THEN NULL ELSE '{DEFAULT}' END AS p "
        f"FROM range(100000) t(i)) TO '{root}' (FORMAT parquet, PARTITION_BY (p))"
    )
    if IS_DUCKDB_2:
        con.execute(copy)
        rows = con.execute(f"SELECT p, min(i), count(*) FROM '{root}/**/*.parquet' GROUP BY p")
        assert set(rows.fetchall()) == {(None, 0, 50000), (DEFAULT, 50000, 50000)}
        return
    with pytest.raises(duckdb.Error, match="two outputs of this statement"):
        con.execute(copy)
    store.reset()
    con.execute("CALL penstock_clear_cache()")
    assert con.execute(f"FROM glob('{root}/**')").fetchall() == []


def test_partitions_that_are_closed_early_are_continued_under_new_names(
    con: duckdb.DuckDBPyConnection, store: Fake, root: str
) -> None:
    con.execute("SET threads = 1; SET partitioned_write_max_open_files = 2")
    con.execute("SET partitioned_write_flush_threshold = 2048")
    con.execute(
        f"COPY (SELECT i, i % 5 AS p FROM range(50000) t(i)) TO '{root}' "
        "(FORMAT parquet, PARTITION_BY (p))"
    )
    found = con.execute(f"SELECT count(*), sum(i) FROM '{root}/**/*.parquet'").fetchone()
    assert found == (50000, sum(range(50000)))
    files = con.execute(f"SELECT count(*) FROM glob('{root}/**')").fetchone()
    assert files
    assert files[0] > 5


@pytest.mark.parametrize(
    "options",
    [
        "PER_THREAD_OUTPUT",
        "PER_THREAD_OUTPUT, FILENAME_PATTERN 'f_{uuid}'",
        "FILE_SIZE_BYTES '50KB'",
        "PARTITION_BY (p), APPEND",
        "PARTITION_BY (p), FILENAME_PATTERN '{uuid}'",
        "PARTITION_BY (p), OVERWRITE_OR_IGNORE",
    ],
)
def test_two_statements_may_write_the_same_names(
    con: duckdb.DuckDBPyConnection, root: str, options: str
) -> None:
    modes = "" if "APPEND" in options or "OVERWRITE" in options else ", OVERWRITE_OR_IGNORE"
    copy = (
        f"COPY (SELECT i, i % 3 AS p FROM range(100000) t(i)) TO '{root}' "
        f"(FORMAT parquet, {options}{modes})"
    )
    for _ in range(2):
        con.execute(copy)
    con.execute("BEGIN")
    con.execute(copy)
    con.execute(copy)
    con.execute("COMMIT")
    con.execute(f"PREPARE p AS {copy}")
    for _ in range(2):
        con.execute("EXECUTE p")
    con.execute("DEALLOCATE p")
    found = con.execute(f"SELECT count(*) FROM '{root}/**/*.parquet'").fetchone()
    assert found
    assert found[0] % 100000 == 0


def test_an_export_keeps_tables_apart_whose_names_are_written_alike(
    con: duckdb.DuckDBPyConnection, root: str
) -> None:
    for number, name in enumerate(["a b", "a.b", "a_b", "A-B", "ä"]):
        con.execute(f'CREATE TABLE "{name}" AS SELECT {number} AS i')
    con.execute("CREATE SCHEMA s; CREATE TABLE s.a_b AS SELECT 9 AS i")
    con.execute(f"EXPORT DATABASE '{root}' (FORMAT parquet)")
    found = con.execute(f"SELECT i FROM '{root}/*.parquet' ORDER BY i").fetchall()
    assert [row[0] for row in found] == [0, 1, 2, 3, 4, 9]
