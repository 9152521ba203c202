"""Answers that mean "not now", "not this" or "a part": read right, or refused by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from odd_server import NAMES, PAGE, Answer, Ask, Server, asking, copied, good, read, serving


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    con = asking()
    yield con
    con.close()


@pytest.fixture
def server(bodies: dict[str, bytes]) -> Iterator[Server]:
    """A server that is odd in no way yet."""
    with serving(lambda ask: good(ask, bodies[ask.path[1:]])) as server:
        yield server


def refused(con: duckdb.DuckDBPyConnection, server: Server, name: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        read(con, server.url, name)
    told = str(caught.value)
    assert f"{server.url}/{name}" in told
    return told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [201, 202, 204, 205, 207, 226, 300, 302, 304, 305, 308, 600])
def test_what_is_no_object_is_refused_and_kept_by_nobody(
    status: int,
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    right: dict[str, object],
) -> None:
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '64MiB'")
    as_ever = server.respond
    tag = {"ETag": '"one"', "Accept-Ranges": "bytes"}
    for body in (b"", PAGE):
        server.respond = lambda ask, body=body: Answer(status, body, tag)  # type: ignore[misc]
        assert "redirects to nowhere" in (told := refused(con, server, name)) or str(status) in told
    server.respond = as_ever
    assert read(con, server.url, name) == right[name]
    # At the second read: by HEAD only, then by both.
    server.respond = lambda ask: Answer(status, b"", tag) if ask.method == "HEAD" else as_ever(ask)
    assert read(con, server.url, name) == right[name]
    server.respond = lambda ask: Answer(status, b"", tag)
    assert "redirects to nowhere" in (told := refused(con, server, name)) or str(status) in told
    server.respond = as_ever
    assert read(con, server.url, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
def test_203_is_an_object(
    name: str, con: duckdb.DuckDBPyConnection, server: Server, right: dict[str, object]
) -> None:
    as_ever = server.respond

    def respond(ask: Ask) -> Answer:
        answer = as_ever(replace(ask, range=None))
        answer.status = 203
        return answer

    server.respond = respond
    for _ in range(2):
        assert read(con, server.url, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
def test_202_with_retry_after_is_waited_for(
    name: str, con: duckdb.DuckDBPyConnection, server: Server, right: dict[str, object]
) -> None:
    as_ever = server.respond
    waits = iter([True, True, False])
    server.respond = lambda ask: (
        Answer(202, PAGE, {"Retry-After": "0"}) if next(waits, False) else as_ever(ask)
    )
    assert read(con, server.url, name) == right[name]
    server.respond = lambda ask: Answer(202, PAGE, {"Retry-After": "1"})
    con.execute("SET GLOBAL penstock_cache_validation = 'always'")
    told = refused(con, server, name)
    assert "202" in told
    assert "later" in told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [404, 401, 403, 405, 406, 410, 500, 502, 503, 0, -1])
def test_a_head_that_is_answered_otherwise_than_get_changes_nothing(
    status: int,
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    right: dict[str, object],
) -> None:
    as_ever = server.respond

    def respond(ask: Ask) -> Answer:
        if ask.method == "GET":
            return as_ever(ask)
        if status < 0:
            return Answer(200, b"", {"ETag": '"one"'}, length=0)
        return Answer(status, hangs_up=status == 0)

    server.respond = respond
    for _ in range(3):
        assert read(con, server.url, name) == right[name]
    assert sum(ask.method == "HEAD" for ask, _ in server.seen) <= 2, "learnt at the first"


def test_a_head_without_an_answer_has_a_get_beside_it(
    con: duckdb.DuckDBPyConnection, server: Server, right: dict[str, object]
) -> None:
    as_ever = server.respond
    ends: list[bool] = []

    def respond(ask: Ask) -> Answer:
        if ask.method == "GET":
            return as_ever(ask)
        deadline = time.monotonic() + 5
        while not ends and time.monotonic() < deadline:
            time.sleep(0.05)
        return Answer(200, hangs_up=True)

    server.respond = respond
    begun = time.monotonic()
    for _ in range(3):
        assert read(con, server.url, "x.csv") == right["x.csv"]
    assert time.monotonic() - begun < 4
    ends.append(True)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_absent_stays_so(name: str, con: duckdb.DuckDBPyConnection, server: Server) -> None:
    server.respond = lambda ask: Answer(404, b"no such page")
    for _ in range(2):
        told = refused(con, server, name)
        assert "404" in told
        assert "does not exist" in told


def paged(content_range: str | None, media_type: str = "application/json") -> dict[str, str]:
    return {"Content-Type": media_type} | (
        {"Content-Range": content_range} if content_range else {}
    )


@pytest.mark.parametrize("content_range", [None, "0-24/3573", "items 0-24/3573"])
def test_206_of_a_page_is_read(
    content_range: str | None, con: duckdb.DuckDBPyConnection, server: Server
) -> None:
    rows = b"[" + b",".join(b'{"i": %d}' % i for i in range(30_000)) + b"]"
    server.respond = lambda ask: Answer(206, rows, paged(content_range))
    url = f"{server.url}/items.json"
    for _ in range(2):
        begun = time.monotonic()
        got = con.execute(f"SELECT count(*), sum(i) FROM read_json('{url}')").fetchone()
        assert time.monotonic() - begun < 1
        assert got == (30_000, sum(range(30_000)))
        assert all(ask.method == "GET" for ask, _ in server.seen)
        assert sum(ask.range is not None for ask, _ in server.seen) <= 1, server.asked()
        server.asked()
    assert con.execute(f"SELECT content FROM read_blob('{url}')").fetchone() == (rows,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("told", [None, "wrong", "short", "parts"])
def test_206_that_contradicts_is_asked_for_once_more_without_a_range(
    told: str | None,
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    body = bodies[name]

    def respond(ask: Ask) -> Answer:
        answer = good(ask, body)
        span = ask.span(len(body))
        if ask.method == "HEAD" or span is None:
            return answer
        start, end = span
        match told:
            case None:
                del answer.headers["Content-Range"]
            case "wrong":
                answer.headers["Content-Range"] = f"bytes {start + 1}-{end}/{len(body) + 9}"
            case "short":
                answer.headers["Content-Range"] = f"bytes {start}-{end - 9}/{len(body)}"
                answer.body = answer.body[:-8]
            case "parts":
                answer.headers["Content-Type"] = "multipart/byteranges; boundary=b"
                del answer.headers["Content-Range"]
        return answer

    server.respond = respond
    for _ in range(2):
        begun = time.monotonic()
        assert read(con, server.url, name) == right[name]
        assert time.monotonic() - begun < 1


@pytest.mark.parametrize("name", NAMES)
def test_a_part_that_is_shorter_than_its_head_says_is_not_the_whole_object(
    name: str, con: duckdb.DuckDBPyConnection, server: Server, bodies: dict[str, bytes]
) -> None:
    """The head names one size and the answer without a range another: either may be cut."""
    body = bodies[name]

    def respond(ask: Ask) -> Answer:
        answer = good(ask, body)
        span = ask.span(len(body))
        if ask.method != "HEAD" and span is not None:
            start, end = span
            answer.headers["Content-Range"] = f"bytes {start}-{end}/{len(body) + 1}"
        return answer

    server.respond = respond
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(duckdb.Error, match=r"x\..*contradicts Content-Length"):
            read(con, server.url, name)
        assert time.monotonic() - begun < 1


PART = {"Content-Range": "bytes 0-99/1000"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "headers"),
    [(206, PART), (200, PART), (206, paged(None, "multipart/byteranges; boundary=b"))],
)
def test_a_part_of_what_was_asked_for_whole_is_refused(
    status: int,
    headers: dict[str, str],
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
) -> None:
    server.respond = lambda ask: Answer(status, b"x" * 100, headers)
    for _ in range(2):
        begun = time.monotonic()
        assert "a part of the object" in refused(con, server, name)
        assert time.monotonic() - begun < 1


@pytest.mark.parametrize("status", [400, 416, 501, 200])
def test_a_server_without_ranges_from_the_end_is_learnt_at_once(
    status: int,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    body = bodies["x.parquet"]

    def respond(ask: Ask) -> Answer:
        if ask.is_suffix:
            return Answer(
                status, body if status == 200 else b"", {"ETag": '"one"', "Accept-Ranges": "bytes"}
            )
        return good(ask, body)

    server.respond = respond
    for name in ("a.parquet", "b.parquet", "a.parquet", "c.parquet"):
        assert read(con, server.url, name) == right["x.parquet"]
        assert server.whole_bodies(f"/{name}") <= 1
    assert sum(ask.is_suffix for ask, _ in server.seen) == 1, server.asked()
    if status != 200:
        assert server.whole_bodies("/a.parquet") == 0


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_server_that_fails_on_each_range_from_the_end_is_learnt_soon(
    status: int,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    body = bodies["x.parquet"]
    server.respond = lambda ask: Answer(status) if ask.is_suffix else good(ask, body)
    for name in ("a.parquet", "b.parquet", "a.parquet", "c.parquet"):
        assert read(con, server.url, name) == right["x.parquet"]
        assert server.whole_bodies(f"/{name}") == 0
    # One may fail of itself, two may not, and from the third on none is sent.
    assert sum(ask.is_suffix for ask, _ in server.seen) == 3, server.asked()


@pytest.mark.parametrize(("status", "word"), [(300, "variants"), (411, "length")])
def test_what_only_web_servers_answer_says_what_to_look_at(
    status: int, word: str, con: duckdb.DuckDBPyConnection, server: Server
) -> None:
    server.respond = lambda ask: Answer(status)
    for name in NAMES:
        told = refused(con, server, name)
        assert str(status) in told
        assert word in told


@pytest.mark.parametrize("offers", [True, False])
def test_a_large_object_does_not_come_whole_for_its_footer(
    offers: bool, con: duckdb.DuckDBPyConnection, server: Server
) -> None:
    con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
    rows = 2_000_000
    body = copied("x.parquet", "(COMPRESSION uncompressed, ROW_GROUP_SIZE 20480)", rows)
    assert len(body) > 24 << 20

    def respond(ask: Ask) -> Answer:
        answer = good(replace(ask, range=None) if ask.is_suffix else ask, body)
        if not offers:
            del answer.headers["Accept-Ranges"]
        return answer

    server.respond = respond
    got = con.execute(f"SELECT count(*), sum(i) FROM '{server.url}/big.parquet'").fetchone()
    assert got == (rows, sum(range(rows)))
    assert server.whole_bodies("/big.parquet") <= 1


@pytest.mark.parametrize("offers", [True, False])
def test_without_ranges_one_body_is_enough(
    offers: bool,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    def respond(ask: Ask) -> Answer:
        headers = {"ETag": '"one"'} | ({"Accept-Ranges": "bytes"} if offers else {})
        return Answer(200, bodies[ask.path[1:]], headers)

    server.respond = respond
    for name in NAMES:
        assert read(con, server.url, name) == right[name]
        assert server.whole_bodies(f"/{name}") == 1
