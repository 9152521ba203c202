"""DuckDB's external file cache between statements that read an object while it is replaced."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake, connect, scanner
from wrapping import EXTENSION_OF, load_other

ROWS = 400_000


def place(store: Fake, url: str, version: int) -> None:
    """Another process writes a version: as long as the others, one value in all of its rows."""
    writer = connect()
    writer.execute(f"CREATE SECRET s ({store.secret})")
    writer.execute(
        f"COPY (SELECT {version} + 1000 AS v, md5((i * {version})::VARCHAR) AS s "
        f"FROM range({ROWS}) t(i)) TO '{url}' "
        "(FORMAT parquet, ROW_GROUP_SIZE 20480, COMPRESSION uncompressed)"
    )
    writer.close()


def keep_on_disk(con: duckdb.DuckDBPyConnection, table: str, directory: Path) -> None:
    """All of what is there now comes to lie on our disk, and none of it in DuckDB's cache."""
    con.execute(f"SET GLOBAL penstock_cache_dir = '{directory}'")
    con.execute("SET GLOBAL penstock_cache_validation = 'query'")
    con.execute("SET GLOBAL enable_external_file_cache = false")
    con.execute(f"SELECT max(v), max(s) FROM {table}")
    con.execute("SET GLOBAL enable_external_file_cache = true")


def rest(rows: duckdb.DuckDBPyConnection) -> set[int]:
    """The values in the rows of an open result, to its end or to a conflict.

    DuckDB 2.0 reads other ranges for its cache than without it, so not all are on our disk.
    """
    seen: set[int] = set()
    try:
        while many := rows.fetchmany(20_000):
            seen |= {row[0] for row in many}
    except duckdb.IOException as error:
        assert IS_DUCKDB_2 and "the object changed after this query had opened it" in str(error)
    return seen


@pytest.mark.parametrize("columns", ["v", "v, s"])
@pytest.mark.parametrize("name", ["t.parquet", "t.PARQUET", "t.pq", "t.csv", "t"])
def test_versions_do_not_mix_in_duckdbs_cache(
    store: Fake, columns: str, name: str, tmp_path: Path
) -> None:
    """A result that is open reads on of the old version, beside and after a statement that has
    read the new one, and what comes later sees the new one alone."""
    url = store.url(f"versions/{name}")
    place(store, url, 1)
    table = f"read_parquet('{url}')"
    con = scanner(store)
    keep_on_disk(con, table, tmp_path)
    old = con.cursor().execute(f"SELECT {columns} FROM {table}")
    assert old.fetchmany(10)
    place(store, url, 2)
    new = f"SELECT min(v), max(v), count(*), count(DISTINCT s) FROM {table}"
    expected = (1002, 1002, ROWS, ROWS)
    assert con.cursor().execute(new).fetchone() == expected
    assert rest(old) == {1001}
    assert con.cursor().execute(new).fetchone() == expected
    # Once nobody reads the old version any more, DuckDB's cache keeps the new one.
    store.reset()
    assert con.cursor().execute(new).fetchone() == expected
    assert all(request["method"] == "HEAD" for request in store.requests())


def test_what_duckdb_is_not_told_is_kept_in_our_memory(store: Fake) -> None:
    """As long as somebody holds an old version open DuckDB keeps nothing of the new one."""
    url = store.url("versions/held.parquet")
    place(store, url, 1)
    con = scanner(store)
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '200MB'")
    con.execute("SET GLOBAL penstock_cache_validation = 'query'")
    old = con.cursor().execute(f"SELECT v, s FROM '{url}'")
    assert old.fetchmany(10)
    place(store, url, 2)
    new = f"SELECT min(v), max(v), count(*), count(DISTINCT s) FROM '{url}'"
    expected = (1002, 1002, ROWS, ROWS)
    assert con.cursor().execute(new).fetchone() == expected
    store.reset()
    assert con.cursor().execute(new).fetchone() == expected
    assert sum(request["bytes_out"] for request in store.requests()) == 0
    old.close()


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "t"])
def test_what_duckdb_keeps_is_not_kept_in_our_memory_too(store: Fake, name: str) -> None:
    """Whatever its name, but for what opening a name without a hint brought."""
    url = store.url(f"versions/{name}")
    place(store, url, 1)
    con = scanner(store)
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '200MB'")
    con.execute(f"SELECT count(DISTINCT s), sum(v) FROM read_parquet('{url}')")
    rows = con.execute("SELECT sum(cached_bytes) FROM penstock_cache() WHERE cache = 'memory'")
    kept = rows.fetchone()
    assert kept is not None and (kept[0] or 0) <= (0 if name != "t" else 512 << 10)


def test_versions_do_not_mix_where_a_wrapped_system_opens_the_newer_one(
    wrapped_store: Fake, tmp_path: Path
) -> None:
    """Of what a wrapped system opens, DuckDB's cache keeps one version at a time too."""
    store, extension = wrapped_store, EXTENSION_OF[wrapped_store.kind]
    url = store.url("versions/wrapped.parquet")
    place(store, url, 1)
    con = scanner(store)
    load_other(con, store)
    keep_on_disk(con, f"'{url}'", tmp_path)
    old = con.cursor().execute(f"SELECT v, s FROM '{url}'")
    assert old.fetchmany(10)
    place(store, url, 2)
    con.execute(f"CALL penstock_wrap('{extension}')")
    new = f"SELECT min(v), max(v), count(*), count(DISTINCT s) FROM '{url}'"
    expected = (1002, 1002, ROWS, ROWS)
    assert con.cursor().execute(new).fetchone() == expected
    assert rest(old) == {1001}
    assert con.cursor().execute(new).fetchone() == expected
    con.execute(f"CALL penstock_unwrap('{extension}')")
    assert con.cursor().execute(new).fetchone() == expected
