"""Wrap mode around Hugging Face and the data lake, whose systems have URLs of their own."""

from __future__ import annotations

import hashlib
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest
from harness import AZURE_ACCOUNT, Fake, connect, load_penstock, load_pypi, stats

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


@dataclass
class Hub:
    """Hugging Face behind a proxy: httpfs knows no other address of it than huggingface.co."""

    port: int
    files: dict[str, bytes]
    seen: list[tuple[str, str, str]] = field(default_factory=list)


class HubHandler(http.server.BaseHTTPRequestHandler):
    """Takes CONNECT for huggingface.co, and answers as the hub does inside of it."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    tls: ssl.SSLContext

    def do_CONNECT(self) -> None:
        assert self.path == "huggingface.co:443", self.path
        self.send_response(200)
        self.end_headers()
        self.connection = self.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        asked = self.headers.get("Range", "")
        self.hub.seen.append((self.command, self.path, asked))
        path = self.path.split("?")[0]
        if path.startswith("/api/datasets/me/lake/tree/main"):
            rows = [{"type": "file", "path": name.lstrip("/")} for name in self.hub.files]
            return self.send(200, json.dumps(rows, separators=(",", ":")).encode(), {})
        body = self.hub.files.get(path.removeprefix("/datasets/me/lake/resolve/main"))
        if body is None:
            return self.send(404, b"", {})
        told = {"ETag": f'"{hashlib.md5(body).hexdigest()}"', "Accept-Ranges": "bytes"}
        if not asked:
            return self.send(200, body if with_body else b"", told, len(body))
        first, last = (int(part) for part in asked.removeprefix("bytes=").split("-"))
        told["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        return self.send(206, body[first : last + 1], told)

    def send(
        self, status: int, body: bytes, told: dict[str, str], length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in told.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hub(tmp_path: Path, table: tuple[Path, tuple[int, ...]]) -> Iterator[Hub]:
    """The hub with one file, and a certificate of its own making."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
    command += ["-subj", "/CN=huggingface.co", "-addext", "subjectAltName=DNS:huggingface.co"]
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    hub = Hub(0, {"/data/t.parquet": table[0].read_bytes()})
    handler = type("OneHub", (HubHandler,), {"hub": hub, "tls": tls})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def split(con: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """Reads that were split, their parts, and requests of Penstock's own."""
    found = stats(con)
    return found["wrapped_reads_split"], found["wrapped_sub_reads"], found["requests"]


@pytest.mark.parametrize("client", ["curl", "httplib"])
def test_hugging_face(hub: Hub, table: tuple[Path, tuple[int, ...]], client: str) -> None:
    con = wrapped("httpfs")
    con.execute(f"SET httpfs_client_implementation = '{client}'")
    con.execute(f"SET http_proxy = 'http://127.0.0.1:{hub.port}'")
    # It has a certificate that nobody knows.
    con.execute("SET enable_server_cert_verification = false")
    con.execute("SET enable_curl_server_cert_verification = false")
    assert con.execute(SUM.format("hf://datasets/me/lake/data/t.parquet")).fetchone() == table[1]
    # Of each file the first read is alone.
    reads, parts, own = split(con)
    assert reads >= 3
    assert parts == 4 * reads
    assert own == 0
    ranges = [asked for method, _, asked in hub.seen if method == "GET"]
    assert len(ranges) == len(set(ranges)) >= parts, "each part once"
    hub.seen.clear()
    con.execute("CALL penstock_unwrap('httpfs')")
    assert con.execute(SUM.format("hf://datasets/me/lake/*/t.parquet")).fetchone() == table[1]
    assert any(path.startswith("/api/datasets/me/lake/tree/main") for _, path, _ in hub.seen)
    con.execute("CALL penstock_wrap('HuggingFaceFileSystem')")
    assert con.execute(SUM.format("hf://datasets/me/lake/*/t.parquet")).fetchone() == table[1]
    assert split(con)[0] > reads
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
