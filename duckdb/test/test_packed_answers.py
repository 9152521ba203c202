"""Servers that pack what they send (Content-Encoding): unpacked once, and never given on packed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator

import duckdb
import pyarrow
import pytest
from odd_server import RIGHT, Answer, Ask, Server, asking, files, good, read, serving

NAMES = ["x.csv", "x.parquet", "x.txt"]


def bare_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def packed_by(codec: str) -> Callable[[bytes], bytes]:
    return lambda body: bytes(pyarrow.compress(body, codec=codec, asbytes=True))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": bare_deflate,
    "br": packed_by("brotli"),
    "zstd": packed_by("zstd"),
    "gzip, br": lambda body: packed_by("brotli")(gzip.compress(body)),
    "identity": lambda body: body,
}


@pytest.fixture(scope="module")
def bodies() -> dict[str, bytes]:
    """What the server has."""
    found = files()
    return found | {
        "x.csv.gz": gzip.compress(found["x.csv"]),
        "x.csv.zst": packed_by("zstd")(found["x.csv"]),
    }


@pytest.fixture(scope="module")
def right(bodies: dict[str, bytes]) -> dict[str, object]:
    """What a query gets of each file."""
    names = ("x.csv", "x.parquet", "x.csv.gz", "x.csv.zst")
    return dict[str, object](dict.fromkeys(names, RIGHT)) | {"x.txt": bodies["x.txt"]}


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


def rows_of(con: duckdb.DuckDBPyConnection, server: Server, name: str) -> object:
    if name.startswith("x.csv."):
        url = f"{server.url}/{name}"
        return con.execute(f"SELECT count(*), sum(i) FROM read_csv('{url}')").fetchone()
    return read(con, server.url, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tag", ['"one"', 'W/"one"', None], ids=["strong", "weak", "none"])
@pytest.mark.parametrize("coding", PACKERS)
def test_what_a_server_packs_is_unpacked(
    coding: str,
    tag: str | None,
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    headers = {"Content-Encoding": coding} | ({"ETag": tag} if tag else {})
    packed = PACKERS[coding](bodies[name])
    server.respond = lambda ask: Answer(200, packed, headers)
    for _ in range(3):
        assert rows_of(con, server, name) == right[name]
    assert all(ask.method != "GET" or ask.range or status == 200 for ask, status in server.seen)


@pytest.mark.parametrize("name", ["x.csv.gz", "x.csv.zst"])
@pytest.mark.parametrize("serves_ranges", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_a_packed_file_comes_with_one_layer(
    twice: bool,
    serves_ranges: bool,
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    coding = "gzip" if name.endswith("gz") else "zstd"
    body = PACKERS[coding](bodies[name]) if twice else bodies[name]

    def respond(ask: Ask) -> Answer:
        answer = good(ask, body) if serves_ranges else Answer(200, body, {"ETag": '"one"'})
        answer.headers["Content-Encoding"] = coding
        return answer

    server.respond = respond
    for _ in range(3):
        assert rows_of(con, server, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
def test_ranges_of_the_packed_form_are_no_ranges_of_the_object(
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    packed = gzip.compress(bodies[name])

    def respond(ask: Ask) -> Answer:
        answer = good(ask, packed)
        answer.headers["Content-Encoding"] = "gzip"
        return answer

    server.respond = respond
    for _ in range(3):
        assert rows_of(con, server, name) == right[name]


@pytest.mark.parametrize("name", [*NAMES, "x.csv.gz"])
def test_a_part_that_has_all_of_the_packed_form_is_unpacked(
    name: str,
    con: duckdb.DuckDBPyConnection,
    server: Server,
    bodies: dict[str, bytes],
    right: dict[str, object],
) -> None:
    packed = gzip.compress(bodies[name])
    whole = f"bytes 0-{len(packed) - 1}/{len(packed)}"

    def respond(ask: Ask) -> Answer:
        answer = good(ask, packed)
        if ask.range is None:
            answer.status = 206
            answer.headers["Content-Range"] = whole
        answer.headers["Content-Encoding"] = "gzip"
        return answer

    server.respond = respond
    for _ in range(3):
        assert rows_of(con, server, name) == right[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("coding", ["compress", "dcb", "gzip, snappy"])
def test_what_cannot_be_unpacked_is_refused_by_name(
    coding: str, name: str, con: duckdb.DuckDBPyConnection, server: Server
) -> None:
    server.respond = lambda ask: Answer(200, b"packed" * 1000, {"Content-Encoding": coding})
    with pytest.raises(duckdb.Error, match="Content-Encoding") as caught:
        rows_of(con, server, name)
    assert f"{server.url}/{name}" in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_label_without_packing_is_refused_by_name(
    name: str, con: duckdb.DuckDBPyConnection, server: Server, bodies: dict[str, bytes]
) -> None:
    server.respond = lambda ask: Answer(200, bodies[name], {"Content-Encoding": "gzip"})
    with pytest.raises(duckdb.Error, match="Content-Encoding: gzip"):
        rows_of(con, server, name)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_bomb_ends_at_the_memory_limit(
    coding: str, con: duckdb.DuckDBPyConnection, server: Server
) -> None:
    con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
    bomb = PACKERS[coding](bytes(200 << 20))
    assert len(bomb) < 1 << 20
    server.respond = lambda ask: Answer(200, bomb, {"Content-Encoding": coding})
    with pytest.raises(duckdb.Error, match="memory_limit_bytes") as caught:
        con.execute(f"FROM '{server.url}/x.parquet'")
    assert "Content-Encoding" in str(caught.value)
