"""What a wrapped system writes and removes, once it is unwrapped and Penstock reads it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from harness import Fake, connect, load_penstock
from wrapping import EXTENSION_OF, load_other


@pytest.fixture
def store(wrapped_store: Fake) -> Fake:
    """Each store that another extension can serve in turn."""
    return wrapped_store


def beside(store: Fake, cache: Path | None, policy: str) -> duckdb.DuckDBPyConnection:
    """A new database in which the other extension is loaded, and not wrapped yet."""
    con = connect(load=False)
    load_other(con, store)
    load_penstock(con)
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"SET GLOBAL penstock_cache_validation = '{policy}'")
    if cache:
        con.execute(f"SET GLOBAL penstock_cache_dir = '{cache}'")
    return con


def wrapped(con: duckdb.DuckDBPyConnection, store: Fake, statement: str) -> None:
    """Runs a statement by the other extension."""
    con.execute(f"CALL penstock_wrap('{EXTENSION_OF[store.kind]}')")
    con.execute(statement)
    con.execute(f"CALL penstock_unwrap('{EXTENSION_OF[store.kind]}')")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("policy", ["time", "never"])
@pytest.mark.parametrize("has_disk", [False, True])
def test_what_is_written_through_a_wrapped_system_is_read(
    store: Fake, ending: str, policy: str, has_disk: bool, tmp_path: Path
) -> None:
    """Also where a database has the object on its disk, and has never read it itself."""
    cache = tmp_path if has_disk else None
    url = store.url(f"wrapped/{policy}-{has_disk}.{ending}")
    write = f"COPY (SELECT {{}} AS v, i FROM range(1000) t(i)) TO '{url}'"
    read = f"SELECT min(v), max(v), count(*) FROM '{url}'"
    con = beside(store, cache, policy)
    con.execute(write.format(1))
    assert con.execute(read).fetchone() == (1, 1, 1000)
    wrapped(con, store, write.format(2))
    assert con.execute(read).fetchone() == (2, 2, 1000)
    con.close()
    con = beside(store, cache, policy)
    wrapped(con, store, write.format(3))
    con.close()
    con = beside(store, cache, policy)
    assert con.execute(read).fetchone() == (3, 3, 1000)


def test_what_is_added_and_removed_through_a_wrapped_system_is_listed(store: Fake) -> None:
    con = beside(store, None, "never")
    url = store.url("wrapped/parts")
    write = (
        "COPY (SELECT i, i % {} AS p FROM range(60) t(i)) TO '{}' (FORMAT csv, PARTITION_BY p{})"
    )
    read = f"SELECT count(*), count(DISTINCT p) FROM read_csv('{url}/*/*.csv')"
    con.execute(write.format(3, url, ""))
    assert con.execute(read).fetchone() == (60, 3)
    wrapped(con, store, write.format(6, url, ", OVERWRITE_OR_IGNORE"))
    assert con.execute(read).fetchone() == (60, 6)
    wrapped(con, store, write.format(2, url, ", OVERWRITE"))
    assert con.execute(read).fetchone() == (60, 2)


def test_a_write_through_a_wrapped_system_that_fails_is_not_remembered_as_done(
    store: Fake,
) -> None:
    """What became of it nobody knows, so each statement asks."""
    con = beside(store, None, "never")
    url = store.url("wrapped/failed.csv")
    con.execute(f"COPY (SELECT 1 AS v) TO '{url}'")
    read = f"SELECT v FROM '{url}'"
    assert con.execute(read).fetchone() == (1,)
    broken = "CASE WHEN i < 90000 THEN i ELSE error('broken') END"
    failing = f"SELECT {broken} AS v FROM range(100000) t(i)"
    with pytest.raises(duckdb.Error, match="broken"):
        wrapped(con, store, f"COPY ({failing}) TO '{url}'")
    con.execute(f"CALL penstock_unwrap('{EXTENSION_OF[store.kind]}')")
    other = connect()
    other.execute(f"CREATE SECRET s ({store.secret})")
    other.execute(f"COPY (SELECT 22 AS v) TO '{url}'")
    assert con.execute(read).fetchone() == (22,)
    other.execute(f"COPY (SELECT 333 AS v) TO '{url}'")
    assert con.execute(read).fetchone() == (333,)


def test_a_cache_that_cannot_be_used_refuses_nothing_that_a_wrapped_system_does(
    store: Fake, tmp_path: Path
) -> None:
    """What is written and removed by it is not ours."""
    url = store.url("wrapped/without-cache")
    above = tmp_path / "above"
    con = beside(store, above / "cache", "never")
    # After `SET`, which checks it.
    shutil.rmtree(above, ignore_errors=True)
    above.write_text("not a directory")
    parts = "SELECT i, i % 2 AS p FROM range(60) t(i)"
    write = f"COPY ({parts}) TO '{url}/written' (FORMAT csv, PARTITION_BY p, OVERWRITE)"
    wrapped(con, store, write)
    wrapped(con, store, write)
    con.execute("SET GLOBAL penstock_cache_dir = ''")
    read = f"SELECT count(*), count(DISTINCT p) FROM read_csv('{url}/written/*/*.csv')"
    assert con.execute(read).fetchone() == (60, 2)
