"""`disabled_filesystems` with the names of httpfs and azure: Penstock stands in their place."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from harness import BUILD, Fake, connect, load_penstock
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


def test_a_volume_in_a_file_is_a_local_file(tmp_path: Path) -> None:
    """A device is none: what DuckDB's own file system would read is disabled, and not that."""
    volume = tmp_path / "volume.img"
    with volume.open("wb") as made:
        made.truncate(64 << 20)
    command = [str(BUILD / "penstock"), "nvme", "format", str(volume)]
    subprocess.run(command, check=True, capture_output=True)
    link = tmp_path / "link"
    link.symlink_to(volume)
    con = connect()
    con.execute(f"ATTACH 'nvme://{volume}?db=a' AS a; CREATE TABLE a.t AS FROM range(3); DETACH a")
    disabled(con, "LocalFileSystem")
    for name in (volume, link, tmp_path / "absent"):
        for statement in (
            f"ATTACH 'nvme://{name}?db=a' AS a",
            f"ATTACH 'nvme://{name}?db=a' AS a (READ_ONLY)",
            f"FROM read_blob('nvme://{name}?db=a')",
            f"FROM glob('nvme://{name}?db=*')",
            f"COPY (SELECT 1 AS i) TO 'nvme://{name}?db=b'",
        ):
            refused(con, "LocalFileSystem", statement)
    # The kernel's own device is refused for what it is.
    with pytest.raises(duckdb.Error, match="no NVMe device"):
        con.execute("ATTACH 'nvme:///dev/null?db=a' AS a")


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
