"""A lake whose data lies behind our URLs: its catalog never names a file that is not durable."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import Fake, load_pypi

BIG = "SELECT i, i % 10 AS p, hash(i) AS h FROM range(100000) t(i)"


@pytest.fixture
def lake(con: duckdb.DuckDBPyConnection, store: Fake, tmp_path: Path) -> str:
    """Attaches an empty lake; without httpfs and azure."""
    load_pypi(con, "ducklake")
    name = f"lake_{store.kind}"
    data = store.url(f"lake/{tmp_path.name.replace('_', '-')}/")
    con.execute(f"ATTACH 'ducklake:{tmp_path}/{name}.ducklake' AS {name} (DATA_PATH '{data}')")
    return name


def test_a_lake_lives(con: duckdb.DuckDBPyConnection, lake: str) -> None:
    con.execute(f"CREATE TABLE {lake}.t AS {BIG}")
    con.execute(f"INSERT INTO {lake}.t {BIG}")
    con.execute(f"UPDATE {lake}.t SET i = 0 WHERE p = 3")
    con.execute(f"DELETE FROM {lake}.t WHERE p = 4")
    row = con.execute(f"SELECT count(*), sum(i) FROM {lake}.t").fetchone()
    rest = sum(i for i in range(100_000) if i % 10 not in (3, 4))
    assert row == (180_000, 2 * rest)
    con.execute(f"CALL ducklake_merge_adjacent_files('{lake}')")
    con.execute(f"CALL ducklake_expire_snapshots('{lake}', older_than => now())")
    con.execute(f"CALL ducklake_cleanup_old_files('{lake}', cleanup_all => true)")
    assert con.execute(f"SELECT count(*), sum(i) FROM {lake}.t").fetchone() == row


def test_an_insert_whose_upload_fails_does_not_commit(
    con: duckdb.DuckDBPyConnection, store: Fake, lake: str
) -> None:
    con.execute(f"CREATE TABLE {lake}.t AS {BIG}")
    store.arm("status=403,method=PUT")
    with pytest.raises(duckdb.Error, match="403"):
        con.execute(f"INSERT INTO {lake}.t {BIG}")
    store.reset()
    assert con.execute(f"SELECT count(*) FROM {lake}.t").fetchone() == (100_000,)


def test_httpfs_is_not_taken_for_loaded_afterwards(
    con: duckdb.DuckDBPyConnection, lake: str
) -> None:
    loaded = "SELECT list(extension_name) FROM duckdb_extensions() WHERE loaded"
    row = con.execute(loaded).fetchone()
    assert row
    assert not {"httpfs", "azure"} & set(row[0])
    load_pypi(con, "httpfs")
    row = con.execute(loaded).fetchone()
    assert row
    assert "httpfs" in row[0]
    assert lake
