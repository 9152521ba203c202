"""What wrap mode is tested around: httpfs, azure, and a small stand-in for httpfs (toy.cpp)."""

from __future__ import annotations

import functools
import subprocess

import duckdb
from harness import IS_DUCKDB_2, ROOT, Fake, connect, load_penstock, load_pypi, start_fake

EXTENSION_OF = {"s3": "httpfs", "azure": "azure", "toy": "httpfs"}
"""Whose name wraps the systems of a store."""
SYSTEMS = {
    "s3": ["S3FileSystem", "HTTPFileSystem", "HuggingFaceFileSystem"],
    "azure": ["AzureBlobStorageFileSystem", "AzureDfsStorageFileSystem"],
    "toy": ["S3FileSystem"],
}
LARGE_READS = (
    "SET GLOBAL external_file_cache_remote_max_block_size = 67108864;"
    "SET GLOBAL external_file_cache_local_max_block_size = 67108864;"
    if IS_DUCKDB_2
    else ""
)
"""DuckDB 2.0 cuts reads into blocks of its cache, 2 MiB or, of schemes it does not know, 16 KiB."""
FOUR_PARTS = LARGE_READS + (
    "SET GLOBAL penstock_parallel_read_auto_fanout_enabled = false;"
    "SET GLOBAL penstock_parallel_read_chunk_size_bytes = '1MiB';"
    "SET GLOBAL penstock_parallel_read_max_fanout = 4"
)
"""Four parts of 1 MiB whatever the cost model thinks."""
ONE_READ_AT_A_TIME = "SET read_ahead_depth = 0;" if IS_DUCKDB_2 else ""
"""Of a scan; DuckDB 2.0 reads further row groups meanwhile."""


class ToyStore(Fake):
    """An S3 store that lets everybody in, with one bucket, whose URLs the stand-in serves, too."""

    @property
    def secret(self) -> str:
        """For this bucket only, beside other stores."""
        return f"{super().secret}, SCOPE 's3://toy/'"

    def url(self, name: str) -> str:
        """The URL of a name in the bucket."""
        return f"s3://toy/{name}"


def start_toy() -> ToyStore:
    """A store for the stand-in."""
    fake = start_fake("s3", "--anonymous")
    return ToyStore("toy", fake.port, fake.process)


@functools.cache
def toy_extension() -> str:
    """The file of the stand-in, for the DuckDB that runs."""
    command = [f"{ROOT}/scripts/duckdb-build-toy.sh", duckdb.__version__]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def load_other(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    """Loads the extension that is to be wrapped around this store."""
    if store.kind == "toy":
        con.execute(f"LOAD '{toy_extension()}'; SET GLOBAL toy_server = '{store.address}'")
    else:
        load_pypi(con, EXTENSION_OF[store.kind])


def wrapped(store: Fake, *, settings: str = FOUR_PARTS) -> duckdb.DuckDBPyConnection:
    """A connection on which the other extension serves this store, wrapped."""
    con = connect(load=False)
    load_other(con, store)
    load_penstock(con)
    con.execute(f"CREATE SECRET s ({store.secret}); {settings}")
    con.execute(f"CALL penstock_wrap('{EXTENSION_OF[store.kind]}')")
    return con
