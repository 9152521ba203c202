"""The cache in memory: it holds what DuckDB's own cache does not, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake, connect, wait_until

ROWS = "SELECT i, hash(i) AS h FROM range(300000) t(i)"


def in_memory(con: duckdb.DuckDBPyConnection) -> int:
    """Bytes that Penstock's cache in memory holds."""
    return cached(con, "memory")


def cached(con: duckdb.DuckDBPyConnection, where: str) -> int:
    """Bytes that one of Penstock's caches holds."""
    found = con.execute(
        "SELECT coalesce(sum(cached_bytes), 0)::BIGINT FROM penstock_cache() WHERE cache = ?",
        [where],
    ).fetchone()
    assert found
    return int(found[0])


def by_duckdb(con: duckdb.DuckDBPyConnection) -> int:
    """Bytes that DuckDB's external file cache holds."""
    found = con.execute(
        "SELECT coalesce(sum(nr_bytes), 0)::BIGINT FROM duckdb_external_file_cache()"
    ).fetchone()
    assert found
    return int(found[0])


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("parquet", "SELECT bit_xor(hash(h)), sum(i) FROM '{}'"),
        ("json", "SELECT bit_xor(hash(h)), sum(i) FROM '{}'"),
        ("csv", "SELECT bit_xor(hash(h)), sum(i) FROM '{}'"),
        ("txt", "SELECT octet_length(content) FROM read_blob('{}')"),
    ],
)
@pytest.mark.parametrize("is_on", [True, False], ids=["its cache on", "its cache off"])
def test_bytes_are_in_one_memory(kind: str, sql: str, *, is_on: bool, store: Fake) -> None:
    url = store.url(f"once/{is_on}.{kind}")
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    form = {"txt": "csv"}.get(kind, kind)
    con.execute(f"COPY ({ROWS}) TO '{url}' (FORMAT {form})")
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '64MiB'")
    con.execute(f"SET enable_external_file_cache = {is_on}")
    answer = con.execute(sql.format(url)).fetchone()
    ours, theirs = in_memory(con), by_duckdb(con)
    least = 2_000_000
    assert (ours >= least) != (theirs >= least), (ours, theirs)
    assert min(ours, theirs) == 0
    store.reset()
    assert con.execute(sql.format(url)).fetchone() == answer
    assert sum(request["bytes_out"] for request in store.requests()) < least / 4
    con.close()


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("parquet", "SELECT bit_xor(hash(h)), sum(i) FROM '{}'"),
        ("csv", "SELECT bit_xor(hash(h)), sum(i) FROM '{}'"),
    ],
)
@pytest.mark.parametrize("is_on", [True, False], ids=["its cache on", "its cache off"])
def test_what_is_on_disk_is_in_no_memory_of_ours(
    kind: str, sql: str, *, is_on: bool, store: Fake, tmp_path: Path
) -> None:
    url = store.url(f"disk/{is_on}.{kind}")
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"COPY ({ROWS}) TO '{url}' (FORMAT {kind})")
    con.execute(f"SET GLOBAL penstock_cache_dir = '{tmp_path}'")
    con.execute(f"SET enable_external_file_cache = {is_on}")
    answer = con.execute(sql.format(url)).fetchone()
    least = 2_000_000
    # It is written behind the statement.
    wait_until(lambda: cached(con, "disk") >= least, "the writing to the disk")
    assert in_memory(con) == 0
    # DuckDB keeps Parquet where it may, and from 2.0 on text, too.
    assert (by_duckdb(con) >= least) == (is_on and (IS_DUCKDB_2 or kind == "parquet"))
    store.reset()
    assert con.execute(sql.format(url)).fetchone() == answer
    assert sum(request["bytes_out"] for request in store.requests()) < least / 4
    con.close()
