"""HTTP servers that tell little of an object, or not what they send: right data or an error."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest
from harness import HttpServer, connect

ROWS = 400_000
RIGHT = (ROWS, sum(range(ROWS)))


@dataclass
class Odd:
    """What the server has, and how it answers."""

    body: bytes
    tag: str | None = None
    """Of each answer."""
    quirk: str = ""
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    """Method and Range header of each request."""
    url: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves one object, by ranges."""

    protocol_version = "HTTP/1.1"
    odd: Odd

    def do_HEAD(self) -> None:
        self.odd.seen.append(("HEAD", None))
        self.head(200, len(self.odd.body))

    def do_GET(self) -> None:
        odd, size = self.odd, len(self.odd.body)
        asked = self.headers.get("Range")
        odd.seen.append(("GET", asked))
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", asked or "")
        if not found or odd.quirk == "ignores ranges":
            self.head(200, size)
            self.send(odd.body)
            return
        first, last = found.groups()
        start = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1 if first and last else size, size)
        body, total = odd.body[start:end], size
        match odd.quirk:
            case "another range":
                start += 1
            case "too short":
                end, body = end - 10, body[:-10]
            case "longer body than told":
                body += b"0123456789"
            case "larger total":
                total += 1000
        length = len(body) - 10 * (odd.quirk == "longer body than told")
        if odd.quirk == "cut":
            body = body[: (len(body) + 1) // 2]
        self.head(206, length, f"bytes {start}-{end - 1}/{total}")
        self.send(body)

    def head(self, status: int, length: int, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        if content_range:
            self.send_header("Content-Range", content_range)
        if self.odd.tag:
            self.send_header("ETag", self.odd.tag)
        if self.odd.quirk in ("cut", "longer body than told"):
            self.close_connection = True
        self.end_headers()

    def send(self, body: bytes) -> None:
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client had read enough

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of several row groups, 6 MB."""
    path = tmp_path_factory.mktemp("odd") / "x.parquet"
    duckdb.sql(
        f"COPY (SELECT i, hash(i) AS h FROM range({ROWS}) t(i)) TO '{path}' "
        "(COMPRESSION uncompressed, ROW_GROUP_SIZE 40960)"
    )
    return path.read_bytes()


@pytest.fixture
def odd(parquet: bytes) -> Iterator[Odd]:
    """A server that is odd in no way yet."""
    odd = Odd(parquet)
    handler = type("OneHandler", (Handler,), {"odd": odd})
    server = HttpServer(("127.0.0.1", 0), handler)
    odd.url = f"http://127.0.0.1:{server.server_port}/x.parquet"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield odd
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that gives up soon."""
    con = connect()
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_retry_max_ms = 20")
    con.execute("SET penstock_request_deadline_ms = 500")
    yield con
    con.close()


OPEN_FETCH_BYTES = 256 << 10
"""What opening reads of a file's end."""


def answer(con: duckdb.DuckDBPyConnection, odd: Odd) -> tuple[int, ...] | None:
    """The answer that takes both columns; no statistics answer the filter."""
    return con.execute(f"SELECT count(*), sum(i) FROM '{odd.url}' WHERE h % 7 < 7").fetchone()


@pytest.mark.parametrize("tag", ['W/"one"', None], ids=["weak", "none"])
def test_what_has_no_strong_tag_is_read_right_and_kept_by_nobody(
    tag: str | None, odd: Odd, con: duckdb.DuckDBPyConnection
) -> None:
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '64MiB'")
    con.execute("SET enable_external_file_cache = false")
    odd.tag = tag
    assert answer(con, odd) == RIGHT
    odd.seen.clear()
    assert answer(con, odd) == RIGHT
    # But for the footer, which the time of validity covers where a tag tells versions apart, and
    # the four bytes that every Parquet file begins with, all of it is asked for anew, in however
    # many requests.
    again = [asked.removeprefix("bytes=").split("-") for _, asked in odd.seen if asked]
    asked_bytes = sum(int(last) + 1 - int(first) if first else int(last) for first, last in again)
    kept_bytes = OPEN_FETCH_BYTES if tag else 0
    assert asked_bytes >= len(odd.body) - kept_bytes - 4 > 0
    rows = con.execute("SELECT sum(blocks) FROM penstock_cache() WHERE cache = 'memory'").fetchone()
    assert rows in ((0,), (None,))


def test_a_strong_tag_lets_it_be_kept(odd: Odd, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '64MiB'")
    con.execute("SET enable_external_file_cache = false")
    odd.tag = '"one"'
    assert answer(con, odd) == RIGHT
    odd.seen.clear()
    assert answer(con, odd) == RIGHT
    assert [asked for _, asked in odd.seen if asked] == []


@pytest.mark.parametrize("keeper", ["duckdb", "memory", "disk"])
def test_what_came_whole_is_kept_too(
    keeper: str, odd: Odd, con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    odd.tag, odd.quirk = '"one"', "ignores ranges"
    if keeper == "memory":
        con.execute("SET GLOBAL penstock_cache_memory_bytes = '64MiB'")
    if keeper == "disk":
        con.execute(f"SET GLOBAL penstock_cache_dir = '{tmp_path}'")
    if keeper != "duckdb":
        con.execute("SET enable_external_file_cache = false")
    con.execute("SET GLOBAL penstock_cache_validation = 'query'")
    assert answer(con, odd) == RIGHT
    assert [method for method, _ in odd.seen] == ["GET"], "one body"
    for _ in range(2):
        odd.seen.clear()
        assert answer(con, odd) == RIGHT
        assert odd.seen == [("HEAD", None)]
    odd.tag = '"two"'
    odd.seen.clear()
    assert answer(con, odd) == RIGHT
    assert odd.seen[-1][0] == "GET", "another version is fetched"


@pytest.mark.parametrize("tag", ['W/"one"', None, '"one"'], ids=["weak", "none", "strong"])
@pytest.mark.parametrize(
    "quirk",
    [
        "ignores ranges",
        "longer body than told",
        # A part that is not the one asked for is followed by a request without a range.
        "another range",
        "too short",
        "larger total",
        # Each answer brings half of what is left, and the rest is asked for again.
        "cut",
    ],
)
def test_a_server_that_lies_gives_no_wrong_answer(
    quirk: str, tag: str | None, odd: Odd, con: duckdb.DuckDBPyConnection
) -> None:
    odd.tag, odd.quirk = tag, quirk
    # All of it comes, so nothing waits for the end of this. The last halves of what is cut are too
    # small to count as progress, and share it.
    con.execute("SET penstock_request_deadline_ms = 10000")
    assert answer(con, odd) == RIGHT


@pytest.mark.parametrize("tag", ['W/"{}"', None], ids=["weak", "none"])
def test_an_object_that_changes_its_size_under_a_reader_is_a_conflict(
    tag: str | None, odd: Odd, con: duckdb.DuckDBPyConnection
) -> None:
    con.execute("SET threads = 1")
    con.execute("SET enable_external_file_cache = false")
    odd.tag = tag.format(1) if tag else None
    rows = con.execute(
        f"SELECT i FROM '{odd.url}'",
    ).to_arrow_reader(2048)
    assert rows.read_next_batch().num_rows > 0
    odd.tag = tag.format(2) if tag else None
    odd.body += b"more"
    with pytest.raises(Exception, match=r"x.parquet") as caught:
        rows.read_all()
    assert "changed" in str(caught.value) or "replaced" in str(caught.value), str(caught.value)
