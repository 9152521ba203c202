"""An HTTP server whose answers a test decides one by one, and what it was asked."""

from __future__ import annotations

import http.server
import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from harness import HttpServer, connect


@dataclass(frozen=True)
class Ask:
    """One request."""

    method: str
    path: str
    range: str | None
    """Of the header, as it was sent."""
    authorization: str | None = None
    """The same."""

    def span(self, size: int) -> tuple[int, int] | None:
        """Where the range lies in a file of this size."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.range or "")
        if not found:
            return None
        first, last = found.groups()
        if not first:
            return max(size - int(last), 0), size
        return int(first), min(int(last) + 1 if last else size, size)

    @property
    def is_suffix(self) -> bool:
        """Whether the range is counted from the end."""
        return (self.range or "").startswith("bytes=-")


@dataclass
class Answer:
    """What goes back: `length` is told of a body that HEAD does not send."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    hangs_up: bool = False


def good(ask: Ask, body: bytes, tag: str | None = '"one"') -> Answer:
    """As a server answers that serves ranges of either kind."""
    headers = {"Accept-Ranges": "bytes"} | ({"ETag": tag} if tag else {})
    span = ask.span(len(body))
    if ask.method == "HEAD" or span is None:
        return Answer(200, body, headers)
    start, end = span
    if start >= len(body):
        return Answer(416, b"", headers | {"Content-Range": f"bytes */{len(body)}"})
    return Answer(
        206, body[start:end], headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}
    )


@dataclass
class Server:
    """Answers by `respond`, which a test may change at any time."""

    respond: Callable[[Ask], Answer]
    seen: list[tuple[Ask, int]] = field(default_factory=list)
    """Each request and the status of its answer."""
    url: str = ""

    def asked(self) -> list[str]:
        """Method and range of each request since the last call."""
        asked = [" ".join(filter(None, (ask.method, ask.range))) for ask, _ in self.seen]
        self.seen.clear()
        return asked

    def whole_bodies(self, path: str) -> int:
        """How often all of a file was sent."""
        return sum(
            ask.method == "GET" and ask.path == path and status == 200 for ask, status in self.seen
        )


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_test: Server
    tls: ssl.SSLContext | None = None

    def do_CONNECT(self) -> None:
        """A proxy with whatever host was asked for behind it, under this certificate."""
        assert self.tls
        self.send_response(200)
        self.end_headers()
        self.connection = self.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_HEAD(self) -> None:
        self.reply()

    def do_GET(self) -> None:
        self.reply()

    def reply(self) -> None:
        server = self.server_of_test
        said = (self.headers.get("Range"), self.headers.get("Authorization"))
        ask = Ask(self.command, self.path, *said)
        answer = server.respond(ask)
        server.seen.append((ask, answer.status))
        if answer.hangs_up:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        is_bare = answer.status in (204, 304) or answer.status < 200
        if not is_bare and "Transfer-Encoding" not in answer.headers:
            length = len(answer.body) if answer.length is None else answer.length
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if ask.method == "GET" and not is_bare:
            try:
                self.wfile.write(answer.body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client had read enough

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def serving(
    respond: Callable[[Ask], Answer], tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """A server while a test runs; with a certificate also a proxy in front of others."""
    server = Server(respond)
    handler = type("OneHandler", (_Handler,), {"server_of_test": server, "tls": tls})
    listener = HttpServer(("127.0.0.1", 0), handler)
    server.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def asking() -> duckdb.DuckDBPyConnection:
    """A database that asks for the version in each query, and gives up soon."""
    con = connect()
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_retry_max_ms = 20")
    con.execute("SET penstock_request_deadline_ms = 2000")
    con.execute("SET GLOBAL penstock_cache_validation = 'query'")
    return con


PAGE = b"<html><body>Please wait</body></html>"
NAMES = ["x.csv", "x.parquet", "x.txt"]
"""The names of `files()`."""
ROWS = 60_000
RIGHT = (ROWS, sum(range(ROWS)))
"""What a query gets of the files with rows."""


def copied(name: str, options: str = "", rows: int = ROWS) -> bytes:
    """A file as DuckDB writes it, of numbers and their hashes."""
    with tempfile.TemporaryDirectory() as directory, duckdb.connect() as con:
        path = Path(directory) / name
        con.execute(f"COPY (SELECT i, hash(i) AS h FROM range({rows}) t(i)) TO '{path}' {options}")
        return path.read_bytes()


def files() -> dict[str, bytes]:
    """A file of each kind by its name; none fits into what opening fetches of it."""
    text = "".join(f"line {number}\n" for number in range(40_000))
    return {
        "x.csv": copied("x.csv"),
        "x.parquet": copied("x.parquet", "(COMPRESSION uncompressed, ROW_GROUP_SIZE 8192)"),
        "x.txt": text.encode(),
    }


def read(con: duckdb.DuckDBPyConnection, url: str, name: str) -> object:
    """What a query gets of a file."""
    match name.rsplit(".", 1)[-1]:
        case "csv" | "parquet":
            return con.execute(
                f"SELECT count(*), sum(i) FROM '{url}/{name}' WHERE h IS NOT NULL"
            ).fetchone()
        case _:
            row = con.execute(f"SELECT content FROM read_blob('{url}/{name}')").fetchone()
            return row[0] if row else None
