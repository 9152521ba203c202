"""Writers of other extensions, which close files on another thread or after their statement."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable

import pytest
from c_writer import CWriter
from harness import Fake

SIZES = {"small": 100, "parts": 12 << 20}
# Who closes the file, and when.
CLOSERS: dict[str, Callable[[CWriter, ctypes.c_void_p], None]] = {
    "in the task": CWriter.close,
    "on another thread": CWriter.close_elsewhere,
}


@pytest.fixture
def writer(store: Fake) -> CWriter:
    """A database of its own."""
    return CWriter(store.secret)


@pytest.fixture
def url(store: Fake, request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return store.url(f"writers/{zlib.crc32(request.node.nodeid.encode()):x}")


def size_of(writer: CWriter, store: Fake, url: str) -> int | None:
    """The size of the object, as the store tells it to a query; none where it is not there."""
    store.reset()
    writer.run("CALL penstock_clear_cache()")
    for size in (*SIZES.values(), 0):
        if not writer.run(
            f"SELECT CASE WHEN size != {size} THEN error('other') END FROM read_blob('{url}')"
        ):
            return size
    assert "404" in writer.run(f"FROM read_blob('{url}')")
    return None


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("closer", list(CLOSERS))
def test_a_file_that_is_closed_in_its_statement_is_there(
    writer: CWriter, store: Fake, url: str, closer: str, size: str
) -> None:
    def act() -> None:
        CLOSERS[closer](writer, writer.open(url, SIZES[size]))

    assert writer.act(act) == ""
    assert size_of(writer, store, url) == SIZES[size]


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("closer", list(CLOSERS))
@pytest.mark.parametrize("fault", ["status=403,method=PUT", "reset,method=PUT"])
def test_a_close_that_fails_fails_its_statement(
    writer: CWriter, store: Fake, url: str, closer: str, size: str, fault: str
) -> None:
    store.arm(fault)

    def act() -> None:
        CLOSERS[closer](writer, writer.open(url, SIZES[size]))

    assert url in writer.act(act)
    assert size_of(writer, store, url) is None
    assert writer.run("SELECT 42") == "", "it is told once"


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("closer", list(CLOSERS))
def test_a_file_that_is_closed_after_its_statement_is_there(
    writer: CWriter, store: Fake, url: str, closer: str, size: str
) -> None:
    opened: list[ctypes.c_void_p] = []
    assert writer.act(lambda: opened.append(writer.open(url, SIZES[size]))) == ""
    CLOSERS[closer](writer, opened[0])
    assert size_of(writer, store, url) == SIZES[size]


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("closer", list(CLOSERS))
def test_a_close_that_fails_after_its_statement_fails_the_next(
    writer: CWriter, store: Fake, url: str, closer: str, size: str
) -> None:
    opened: list[ctypes.c_void_p] = []
    assert writer.act(lambda: opened.append(writer.open(url, 100))) == ""
    store.arm("status=403,method=PUT")
    if size == "parts":
        writer.write(opened[0], SIZES[size])
    CLOSERS[closer](writer, opened[0])
    told = writer.run("SELECT 42")
    assert url in told
    assert "run it again" in told
    assert writer.run("SELECT 42") == "", "it is told once"
    assert size_of(writer, store, url) is None


@pytest.mark.parametrize("when", ["in the task", "on another thread", "afterwards"])
@pytest.mark.parametrize("size", list(SIZES))
def test_a_statement_that_fails_publishes_nothing(
    writer: CWriter, store: Fake, url: str, size: str, when: str
) -> None:
    opened: list[ctypes.c_void_p] = []

    def act() -> None:
        opened.append(writer.open(url, SIZES[size]))
        if when == "on another thread":
            writer.close_elsewhere(opened[0])

    # The error is raised in the same task, behind the function.
    told = writer.act(act, ", error('stop here')")
    assert "stop here" in told
    if when != "on another thread":
        CLOSERS.get(when, CWriter.close)(writer, opened[0])
    assert size_of(writer, store, url) is None
    assert store.kind != "s3" or store.unfinished_uploads(url) == []


@pytest.mark.parametrize("size", list(SIZES))
def test_outside_any_statement_a_close_that_fails_fails_the_next(
    writer: CWriter, store: Fake, url: str, size: str
) -> None:
    # DuckDB looks for secrets in a transaction only.
    writer.run("BEGIN")
    writer.close(writer.open(url, SIZES[size]))
    assert writer.run("COMMIT") == ""
    assert size_of(writer, store, url) == SIZES[size]
    writer.run("BEGIN")
    store.arm("status=403,method=PUT")
    writer.close(writer.open(url + "2", SIZES[size]))
    assert url + "2" in writer.run("SELECT 42")
    assert writer.run("COMMIT") == ""
    assert size_of(writer, store, url + "2") is None
