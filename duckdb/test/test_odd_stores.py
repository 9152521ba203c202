"""Object stores whose answers are odd: a HEAD unlike GET, and what is no object at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from harness import AZURE_ACCOUNT, AZURE_KEY
from odd_server import NAMES, PAGE, Answer, Ask, Server, asking, good, read, serving

PREFIXES = {"s3": "/data/", "az": f"/{AZURE_ACCOUNT}/data/", "http": "/data/"}
SERVICE_HEADERS = {"s3": {}, "az": {"x-ms-blob-type": "BlockBlob"}, "http": {}}


class Odd:
    """A store of one kind: what it has, and how a query names it."""

    def __init__(self, kind: str, server: Server, bodies: dict[str, bytes]) -> None:
        self.kind = kind
        self.server = server
        self.bodies = bodies
        self.url = f"{server.url}/data" if kind == "http" else f"{kind}://data"
        self.answers(self.good)

    def answers(self, respond: Callable[[Ask], Answer]) -> None:
        """Answers so from now on; statuses that are no success are dressed as they are given."""
        self.server.respond = lambda ask: respond(
            replace(ask, path=ask.path.removeprefix(PREFIXES[self.kind]))
        )

    def good(self, ask: Ask) -> Answer:
        """As the service answers."""
        return self.dressed(good(ask, self.bodies[ask.path]))

    def dressed(self, answer: Answer) -> Answer:
        """With the headers by which the service is known."""
        return replace(answer, headers=answer.headers | SERVICE_HEADERS[self.kind])

    def create_secret(self, con: duckdb.DuckDBPyConnection) -> None:
        """So that the store's URLs lead to the server."""
        host = self.server.url.removeprefix("http://")
        match self.kind:
            case "s3":
                con.execute(
                    "CREATE SECRET (TYPE s3, KEY_ID 'k', SECRET 'v', URL_STYLE 'path', "
                    f"USE_SSL false, REGION 'us-east-1', ENDPOINT '{host}')"
                )
            case "az":
                con.execute(
                    "CREATE SECRET (TYPE azure, CONNECTION_STRING '"
                    f"AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
                    f"BlobEndpoint={self.server.url}/{AZURE_ACCOUNT}')"
                )


@pytest.fixture(params=PREFIXES)
def odd(request: pytest.FixtureRequest, bodies: dict[str, bytes]) -> Iterator[Odd]:
    """A store that is odd in no way yet."""
    with serving(lambda ask: Answer(500)) as server:
        yield Odd(request.param, server, bodies)


@pytest.fixture
def con(odd: Odd, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with both caches, of which nothing may hold what is no object."""
    con = asking()
    con.execute("SET GLOBAL penstock_cache_memory_bytes = '64MiB'")
    con.execute(f"SET GLOBAL penstock_cache_dir = '{tmp_path}'")
    odd.create_secret(con)
    yield con
    con.close()


def refused(con: duckdb.DuckDBPyConnection, odd: Odd, name: str) -> str:
    """What is said of a read that fails."""
    with pytest.raises(duckdb.Error) as caught:
        read(con, odd.url, name)
    told = str(caught.value)
    assert f"{odd.url}/{name}" in told
    return told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [201, 202, 204, 205, 207, 226, 304])
def test_what_is_no_object_is_refused_and_kept_by_nobody(
    status: int,
    name: str,
    odd: Odd,
    con: duckdb.DuckDBPyConnection,
    right: dict[str, object],
) -> None:
    tag = {"ETag": '"one"', "Accept-Ranges": "bytes"}
    for body in (b"", PAGE):
        answer = Answer(status, body, tag)
        for dressed in (answer, odd.dressed(answer)):
            odd.answers(lambda ask, dressed=dressed: dressed)  # type: ignore[misc]
            told = refused(con, odd, name)
            assert str(status) in told or "not from a Blob service" in told, told
    odd.answers(odd.good)
    assert read(con, odd.url, name) == right[name]
    odd.answers(lambda ask: odd.dressed(Answer(status, b"", tag)))
    assert str(status) in refused(con, odd, name)
    odd.answers(odd.good)
    assert read(con, odd.url, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [201, 202, 204, 304, 404, 401, 403, 405, 406, 500, 501, 502, 0])
def test_a_head_that_is_answered_otherwise_than_get_changes_nothing(
    status: int,
    name: str,
    odd: Odd,
    con: duckdb.DuckDBPyConnection,
    right: dict[str, object],
) -> None:
    odd.answers(
        lambda ask: odd.good(ask) if ask.method == "GET" else Answer(status, hangs_up=status == 0)
    )
    for _ in range(3):
        assert read(con, odd.url, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_absent_stays_so(name: str, odd: Odd, con: duckdb.DuckDBPyConnection) -> None:
    odd.answers(lambda ask: Answer(404))
    for _ in range(2):
        told = refused(con, odd, name)
        assert "404" in told
        assert "does not exist" in told


LIES: dict[str, Callable[[bytes], Answer]] = {
    "another tag": lambda body: Answer(200, body, {"ETag": '"lie"'}),
    "no tag": lambda body: Answer(200, body),
    "a smaller size": lambda body: Answer(200, b"", {"ETag": '"one"'}, length=len(body) - 9),
    "a larger size": lambda body: Answer(200, b"", {"ETag": '"one"'}, length=len(body) + 9),
    "no size": lambda body: Answer(200, b"", {"ETag": '"one"', "Transfer-Encoding": "chunked"}),
    "size zero": lambda body: Answer(200, b"", {"ETag": '"one"'}, length=0),
    "another tag and size": lambda body: Answer(200, b"", {"ETag": '"lie"'}, length=7),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lie", LIES)
def test_a_head_that_lies_gives_no_wrong_rows_and_leaves_nothing(
    lie: str,
    name: str,
    odd: Odd,
    con: duckdb.DuckDBPyConnection,
    right: dict[str, object],
) -> None:
    def respond(ask: Ask) -> Answer:
        if ask.method == "GET":
            return odd.good(ask)
        return odd.dressed(LIES[lie](odd.bodies[ask.path]))

    odd.answers(respond)
    # What GET told first is what HEAD is held against.
    opening = con.execute("SELECT current_setting('penstock_open_fetch_bytes')").fetchone()
    # The service's own word of a blob without a tag counts.
    is_told = opening != ("0",) and (odd.kind, lie) != ("az", "no tag")
    for _ in range(3):
        try:
            assert read(con, odd.url, name) == right[name]
        except duckdb.Error as error:
            assert f"{odd.url}/{name}" in str(error)
            assert not is_told, str(error)
    # Whoever lied says the truth now, and nothing that it said before is in the way.
    odd.answers(odd.good)
    assert read(con, odd.url, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lie", LIES)
def test_a_head_that_lies_before_anything_is_known_gives_no_wrong_rows(
    lie: str,
    name: str,
    odd: Odd,
    con: duckdb.DuckDBPyConnection,
    right: dict[str, object],
) -> None:
    con.execute("SET penstock_open_fetch_bytes = 0")
    test_a_head_that_lies_gives_no_wrong_rows_and_leaves_nothing(lie, name, odd, con, right)


def test_an_empty_file_is_empty(odd: Odd, con: duckdb.DuckDBPyConnection) -> None:
    odd.answers(lambda ask: odd.dressed(good(ask, b"")))
    for _ in range(2):
        assert read(con, odd.url, "x.txt") == b""
