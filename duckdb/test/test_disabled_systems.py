"""`disabled_filesystems` with the names of httpfs and azure: Penstock stands in their place."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from harness import Fake, connect, load_penstock
from test_scopes import Server

SYSTEMS = {"s3": "S3FileSystem", "azure": "AzureBlobStorageFileSystem"}


def refused(con: duckdb.DuckDBPyConnection, system: str, statement: str) -> None:
    # Behind it stands the place in the statement, where DuckDB opens the file to bind it.
    told = rf"^Permission Error: File system {system} has been disabled by configuration(\n|$)"
    with pytest.raises(duckdb.PermissionException, match=told):
        con.execute(statement).fetchall()


def disabled(con: duckdb.DuckDBPyConnection, *systems: str) -> None:
    con.execute(f"SET disabled_filesystems = '{','.join(systems)}'")


@pytest.fixture
def web() -> Iterator[Server]:
    """A web server."""
    running = Server()
    yield running
    running.stop()


@pytest.mark.parametrize("prefix", ["", "cache_httpfs_"])
def test_reads_writes_globs_and_attach_are_refused(
    con: duckdb.DuckDBPyConnection, store: Fake, web: Server, prefix: str
) -> None:
    url = store.url("disabled/x.csv")
    con.execute(f"COPY (SELECT 1 AS i) TO '{url}'")
    system = prefix + SYSTEMS[store.kind]
    disabled(con, system)
    store.reset()
    for statement in (
        f"FROM '{url}'",
        f"FROM read_blob('{url}')",
        f"FROM glob('{store.url('disabled/*')}')",
        f"FROM glob('{store.url('disabled/**')}')",
        f"COPY (SELECT 2 AS i) TO '{url}'",
        f"COPY (SELECT 2 AS i, 3 AS j) TO '{store.url('disabled')}' (PARTITION_BY i, OVERWRITE)",
        f"COPY (SELECT 2 AS i, 3 AS j) TO '{store.url('disabled/d')}' (PARTITION_BY i, APPEND)",
        f"EXPORT DATABASE '{store.url('disabled/export')}'",
        f"ATTACH '{store.url('disabled/x.db')}' (READ_ONLY)",
        f"ATTACH '{store.url('disabled/x.db')}'",
    ):
        refused(con, system, statement)
    assert store.requests() == []
    # The others are not.
    assert con.execute(f"FROM 'http://127.0.0.1:{web.port}/x.csv'").fetchall() == [(7,)]


def test_every_scheme_has_its_system(web: Server) -> None:
    for system, urls in {
        "S3FileSystem": ["s3://b/k", "s3a://b/k", "s3n://b/k", "gs://b/k", "gcs://b/k", "r2://b/k"],
        "AzureBlobStorageFileSystem": ["az://c/k", "azure://c/k"],
        "AzureDfsStorageFileSystem": ["abfss://c@a.dfs.core.windows.net/k", "abfs://c@a.x.y/k"],
        "HTTPFileSystem": ["https://h/k", f"http://127.0.0.1:{web.port}/k", "HTTP://h/k"],
    }.items():
        con = connect()
        disabled(con, "LocalFileSystem", system)
        for url in urls:
            refused(con, system, f"FROM read_blob('{url}')")
    assert web.askers() == set()


def test_a_name_that_nobody_has_disables_who_gets_it(web: Server) -> None:
    """DuckDB takes every name, and looks at it when a file is opened."""
    url = f"http://127.0.0.1:{web.port}/x.csv"
    con = connect(load=False)
    disabled(con, "HTTPFileSystem", "NoSuchFileSystem")
    load_penstock(con)
    refused(con, "HTTPFileSystem", f"FROM '{url}'")
    con = connect()
    disabled(con, "NoSuchFileSystem", "httpfilesystem")
    assert con.execute(f"FROM '{url}'").fetchall() == [(7,)], "names are told by case, as DuckDB's"
    disabled(con, "NoSuchFileSystem", "httpfilesystem", "HTTPFileSystem")
    refused(con, "HTTPFileSystem", f"FROM '{url}'")
    with pytest.raises(duckdb.InvalidInputException, match="cannot be re-enabled"):
        con.execute("RESET disabled_filesystems")


def test_what_is_prepared_is_refused_when_it_runs(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = store.url("disabled/prepared.csv")
    con.execute(f"COPY (SELECT 1 AS i) TO '{url}'")
    con.execute(f"PREPARE p AS FROM read_csv('{url}')")
    disabled(con, SYSTEMS[store.kind])
    refused(con, SYSTEMS[store.kind], "EXECUTE p")
