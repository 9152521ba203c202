"""Wrap mode around Hugging Face and the data lake, whose systems have URLs of their own."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import AZURE_ACCOUNT, Fake, connect, load_penstock, load_pypi, stats
from hub import Repository, hub_behind_a_proxy

FOUR_PARTS = (
    "SET threads = 1; SET enable_external_file_cache = false;"
    "SET GLOBAL penstock_parallel_read_auto_fanout_enabled = false;"
    "SET GLOBAL penstock_parallel_read_chunk_size_bytes = '256KiB';"
    "SET GLOBAL penstock_parallel_read_min_bytes = 0;"
    "SET GLOBAL penstock_parallel_read_max_fanout = 4"
)


SUM = "SELECT count(*), bit_xor(h), sum(i) FROM '{}'"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, ...]]:
    """A Parquet file of five row groups of 2 MiB, and the answer of ``SUM``."""
    path = tmp_path_factory.mktemp("others") / "t.parquet"
    con = duckdb.connect()
    con.execute(
        f"COPY (SELECT i, hash(i) AS h FROM range(600000) t(i)) TO '{path}' "
        "(COMPRESSION uncompressed, ROW_GROUP_SIZE 122880)"
    )
    row = con.execute(SUM.format(path)).fetchone()
    con.close()
    assert row
    return path, row


def wrapped(extension: str) -> duckdb.DuckDBPyConnection:
    """A connection with another extension, wrapped."""
    con = connect(load=False)
    load_pypi(con, extension)
    load_penstock(con)
    con.execute(FOUR_PARTS)
    con.execute(f"CALL penstock_wrap('{extension}')")
    return con


def split(con: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """Reads that were split, their parts, and requests of Penstock's own."""
    found = stats(con)
    return found["wrapped_reads_split"], found["wrapped_sub_reads"], found["requests"]


@pytest.mark.parametrize("client", ["curl", "httplib"])
def test_hugging_face(tmp_path: Path, table: tuple[Path, tuple[int, ...]], client: str) -> None:
    """Behind a proxy: httpfs knows no other address of it than huggingface.co."""
    lake = Repository({"data/t.parquet": table[0].read_bytes()})
    with hub_behind_a_proxy(tmp_path, lake=lake) as hub:
        con = wrapped("httpfs")
        con.execute(f"SET httpfs_client_implementation = '{client}'")
        con.execute(f"SET http_proxy = '{hub.front.url}'")
        # It has a certificate that nobody knows.
        con.execute("SET enable_server_cert_verification = false")
        con.execute("SET enable_curl_server_cert_verification = false")
        con.execute(f"SET ca_cert_file = '{tmp_path}/ca.pem'")
        url = "hf://datasets/me/lake/data/t.parquet"
        assert con.execute(SUM.format(url)).fetchone() == table[1]
        # Of each file the first read is alone.
        reads, parts, own = split(con)
        assert reads >= 3
        assert parts == 4 * reads
        assert own == 0
        ranges = [ask.range for ask, _ in hub.front.seen if ask.method == "GET"]
        assert len(ranges) == len(set(ranges)) >= parts, "each part once"
        hub.front.seen.clear()
        # Then it is read by Penstock itself.
        con.execute("CALL penstock_unwrap('httpfs')")
        pattern = "hf://datasets/me/lake/*/t.parquet"
        assert con.execute(SUM.format(pattern)).fetchone() == table[1]
        assert hub.asked()[0].startswith("GET /api/datasets/me/lake/tree/main?recursive=true")
        own = split(con)[2]
        assert own > 0
        con.execute("CALL penstock_wrap('HuggingFaceFileSystem')")
        assert con.execute(SUM.format(pattern)).fetchone() == table[1]
        assert split(con)[0] > reads
        assert split(con)[2] == own
        with pytest.raises(duckdb.Error, match=r"404|missing"):
            con.execute("FROM 'hf://datasets/me/lake/data/missing.parquet'")
        con.close()


def test_the_data_lake(
    con: duckdb.DuckDBPyConnection, fakes: dict[str, Fake], table: tuple[Path, tuple[int, ...]]
) -> None:
    store = fakes["azure"]
    store.reset()
    con.execute(
        f"COPY (SELECT content FROM read_blob('{table[0]}')) TO 'az://wrap/lake/t.parquet' "
        "(FORMAT blob)"
    )
    store.reset()
    other = wrapped("azure")
    # Names of one file are asked of the account's endpoint for blobs, which is ours too.
    endpoint = f"DfsEndpoint=http://{store.address}/{AZURE_ACCOUNT};"
    other.execute(
        f"CREATE SECRET s (TYPE azure, CONNECTION_STRING '{store.connection_string}{endpoint}')"
    )
    assert other.execute(SUM.format("abfss://wrap/lake/t.parquet")).fetchone() == table[1]
    reads, parts, own = split(other)
    assert reads >= 5
    assert parts == 4 * reads
    assert own == 0
    gets = [row["range"] for row in store.requests() if row["method"] == "GET"]
    assert len(gets) == len(set(gets)) >= parts
    with pytest.raises(duckdb.Error, match="missing"):
        other.execute("FROM 'abfss://wrap/lake/missing.parquet'")
    other.close()
