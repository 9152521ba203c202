"""Plain HTTP servers: read-only, with and without range support."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without ranges; tells which headers came."""

    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        super().do_GET()

    def copyfile(self, source: object, outputfile: object) -> None:
        try:
            super().copyfile(source, outputfile)  # type: ignore[arg-type]
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client had read enough

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Terse(Handler):
    """Tells neither time nor tag, as many small servers do."""

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Last-Modified":
            super().send_header(keyword, value)


@pytest.fixture(params=[Handler, Terse])
def web(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The URL of a server with some files, and the headers of its requests."""
    duckdb.sql(f"COPY (SELECT i FROM range(100000) t(i)) TO '{tmp_path}/x.parquet'")
    for name in ("x.csv", "x.csv.gz"):
        duckdb.sql(f"COPY (SELECT i FROM range(1000) t(i)) TO '{tmp_path}/{name}'")
    seen: list[dict[str, str]] = []
    handler = type("OneHandler", (request.param,), {"seen": seen})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_are_read(
    con: duckdb.DuckDBPyConnection, web: tuple[str, list[dict[str, str]]]
) -> None:
    url, _ = web
    for _ in range(2):
        got = con.execute(f"SELECT count(*), sum(i) FROM '{url}/x.parquet'").fetchone()
        assert got == (100_000, sum(range(100_000)))
    for name in ("x.csv", "x.csv.gz", "x.csv?a=*&b=1"):
        assert con.execute(f"SELECT count(*) FROM read_csv('{url}/{name}')").fetchone() == (1000,)


def test_the_http_secret_is_sent(
    con: duckdb.DuckDBPyConnection, web: tuple[str, list[dict[str, str]]]
) -> None:
    url, seen = web
    con.execute(
        "CREATE SECRET h (TYPE http, BEARER_TOKEN 'abc', EXTRA_HTTP_HEADERS map{'X-One': '1'})"
    )
    con.execute(f"FROM '{url}/x.csv'")
    assert seen[-1]["authorization"] == "Bearer abc"
    assert seen[-1]["x-one"] == "1"
    shown = con.execute("SELECT url, error FROM penstock_requests()").fetchall()
    assert "abc" not in str(shown)


def test_what_http_cannot_do_is_said(
    con: duckdb.DuckDBPyConnection, web: tuple[str, list[dict[str, str]]]
) -> None:
    url, _ = web
    with pytest.raises(duckdb.IOException, match=r"nothing.csv.*404"):
        con.execute(f"FROM '{url}/nothing.csv'")
    with pytest.raises(duckdb.NotImplementedException, match=r"can only be read"):
        con.execute(f"COPY (SELECT 1) TO '{url}/w.csv'")
    with pytest.raises(duckdb.InvalidInputException, match=r"cannot list"):
        con.execute(f"FROM '{url}/*.csv'")
