"""Stands for the web servers that tests of DuckDB's clients read from: the same files, nearer.

A URL whose path names a file of a clone of DuckDB (behind `/data/`) is that file;
`judges/clients-web.tsv` has what else is served. All else is not there (404). No host is named
here: those that a test names and that anything is served for lead here, all others lead nowhere.
"""

from __future__ import annotations

import csv
import re
import ssl
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
from harness import HttpServer
from sqllogic import Record, TestFailedError, parse

LIST = Path(__file__).resolve().parent / "judges" / "clients-web.tsv"
_URL = re.compile(r"https://[^'\"\s)]+")
_PAGE = b"<!doctype html><title>A page</title>\n"


@dataclass(frozen=True)
class Answer:
    """What is served for a URL, and whether HEAD is refused."""

    body: bytes
    is_head_refused: bool = False


class Web:
    """What there is to read, of a clone of DuckDB and of what tests expect."""

    def __init__(self, duckdb_clone: Path, tests: Iterable[Path], directory: Path) -> None:
        self.clone, self.tests, self.directory = duckdb_clone, list(tests), directory
        rows = (line.split("\t") for line in LIST.read_text().splitlines() if line[:1] != "#")
        self.listed = {row[0]: row[1:] for row in rows}

    def answer(self, path: str) -> Answer | None:
        """What a path of a URL stands for; None where it is not there."""
        path = unquote(path)
        if path in ("", "/"):
            return Answer(_PAGE)
        behind = re.search(r"/(data/.*)", path)
        if behind and (self.clone / behind[1]).is_file():
            return Answer((self.clone / behind[1]).read_bytes())
        row = self.listed.get(path.rpartition("/")[2])
        if row is None:
            return None
        if row[0].startswith("rows "):
            return Answer(self._made(path.rpartition("/")[2], row[0].removeprefix("rows ")))
        return Answer((self.clone / row[0]).read_bytes(), "no-head" in row)

    def serves(self, url: str) -> bool:
        """Whether the host of a URL is here: it has the file, or others of a tree of files."""
        path = urlsplit(url).path
        return "/data/" in path or self.answer(path) is not None

    def hosts(self, test: str) -> set[str]:
        """Hosts that a test names and that are here."""
        found = [url for url in _URL.findall(test) if self.serves(url)]
        return {host for url in found if (host := urlsplit(url).hostname)}

    def _made(self, name: str, columns: str) -> bytes:
        """A file of the rows that a test expects of it."""
        target = self.directory / name
        if not target.exists():
            rows = self.directory / f"{name}.csv"
            with rows.open("w", newline="") as out:
                writer = csv.writer(out)
                writer.writerow(_name(one) for one in columns.split(", "))
                for row in self._expected(name):
                    writer.writerow("" if cell == "NULL" else cell for cell in row)
            if name.endswith(".parquet"):
                casts = ", ".join(_cast(one) for one in columns.split(", "))
                duckdb.connect().execute(
                    f"COPY (SELECT {casts} FROM read_csv('{rows}', all_varchar = true)) "
                    f"TO '{target}' (FORMAT parquet)"
                )
            else:
                rows.rename(target)
        return target.read_bytes()

    def _expected(self, name: str) -> list[list[str]]:
        for test in self.tests:
            for record in _records(parse(test.read_text().splitlines())):
                if name in record.sql and record.expected:
                    return [line.split("\t") for line in record.expected]
        raise TestFailedError(f"no test says which rows {name} has")


def _name(column: str) -> str:
    """The name of a column, which stands in quotes where it is of several words."""
    return column.split('"')[1] if '"' in column else column.split()[0]


def _cast(column: str) -> str:
    name, kind = column.split()
    return f"{name}::{kind} AS {name}"


def _records(records: list[Record]) -> Iterator[Record]:
    for record in records:
        yield record
        yield from _records(record.body)


def make_certificate(directory: Path, hosts: Iterable[str]) -> None:
    """An authority (`ca.pem`), and a certificate of it for these hosts (`host.pem`)."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    _openssl(directory, *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=judge")
    names = ",".join(f"DNS:{host}" for host in sorted(hosts))
    of_authority = ("-CA", "ca.pem", "-CAkey", "ca.key")
    leaf = ("-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE")
    _openssl(
        directory, *key, "-keyout", "host.key", "-out", "host.pem", "-subj", "/CN=host",
        *of_authority, *leaf,
    )  # fmt: skip


def _openssl(directory: Path, *words: str) -> None:
    command = ["openssl", "req", "-x509", *words]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)


@contextmanager
def served(web: Web, certificate: Path) -> Iterator[None]:
    """Serves what is there by HTTPS on its usual port."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "host.pem", certificate / "host.key")
    handler = type("OneWeb", (_Handler,), {"web": web})
    server = HttpServer(("127.0.0.1", 443), handler)
    # The handshake is the handler's: one that is slow keeps no other waiting.
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with in_background(server):
        yield


@contextmanager
def in_background(server: HttpServer) -> Iterator[None]:
    """Serves in a thread of its own."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection: files whole and by ranges."""

    web: Web
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        if url.query == "raw=true":
            self._send(302, b"", {"Location": url.path.replace("/blob/", "/raw/", 1)})
            return
        found = self.web.answer(url.path)
        if found is None:
            self._send(404, b"404: not found\n", {})
        elif found.is_head_refused and self.command == "HEAD":
            self._send(403, b"", {})
        else:
            self._send_file(found.body)

    def _send_file(self, body: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        headers = {"Accept-Ranges": "bytes", "ETag": f'"{len(body)}"'}
        if asked is None or self.command == "HEAD" or asked[0] == "bytes=-":
            self._send(200, body, headers)
            return
        begin = int(asked[1]) if asked[1] else max(0, len(body) - int(asked[2]))
        end = min(int(asked[2]) + 1, len(body)) if asked[1] and asked[2] else len(body)
        if begin >= end:
            self._send(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            return
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
        self._send(206, body[begin:end], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
