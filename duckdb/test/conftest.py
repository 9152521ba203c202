"""Fixtures: the fakes of the session, clean for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import odd_server
import pytest
from harness import Fake, connect, start_fake
from not_here import LIST, NotHere, listed
from nvme import NOT_RUN, in_memory
from wrapping import ToyStore, start_toy


def pytest_addoption(parser: pytest.Parser) -> None:
    """How run_all.py has the tests of a long file run beside each other."""
    parser.addoption("--piece", metavar="N/OF", help="only this part of the tests, from 1/OF on")


def pytest_configure(config: pytest.Config) -> None:
    """Knows the tests that do not hold on every DuckDB."""
    config.pluginmanager.register(NotHere(listed(LIST.read_text())))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves every OFth test, beginning with the Nth; each test is in exactly one piece."""
    if told := config.getoption("--piece"):
        number, pieces = map(int, told.split("/"))
        if not 1 <= number <= pieces:
            raise pytest.UsageError(
                f"--piece {told}: there are pieces 1/{pieces} to {pieces}/{pieces}"
            )
        items[:] = items[number - 1 :: pieces]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells what could not be tested here, past the capture of each test's output."""
    for line in NOT_RUN:
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(scope="session")
def fakes() -> Iterator[dict[str, Fake]]:
    """The fake S3 and the fake Azure."""
    running = {kind: start_fake(kind) for kind in ("s3", "azure")}
    yield running
    for fake in running.values():
        fake.stop()


@pytest.fixture(params=["s3", "azure"])
def store(request: pytest.FixtureRequest, fakes: dict[str, Fake]) -> Fake:
    """Each of the fakes in turn."""
    fake = fakes[request.param]
    fake.reset()
    return fake


@pytest.fixture(scope="session")
def toy() -> Iterator[ToyStore]:
    """The store of the small file system that is wrapped."""
    running = start_toy()
    yield running
    running.stop()


@pytest.fixture(params=["s3", "azure", "toy"])
def wrapped_store(request: pytest.FixtureRequest, con: duckdb.DuckDBPyConnection) -> Fake:
    """Each store that another extension can serve in turn; `con` reaches it natively."""
    if request.param != "toy":
        fake: Fake = request.getfixturevalue("fakes")[request.param]
    else:
        fake = request.getfixturevalue("toy")
        con.execute(f"CREATE SECRET toy_secret ({fake.secret})")
    fake.reset()
    return fake


@pytest.fixture
def con(fakes: dict[str, Fake]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the extension and a secret for each fake."""
    connection = connect()
    for kind, fake in fakes.items():
        connection.execute(f"CREATE SECRET {kind}_secret ({fake.secret})")
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def bodies() -> dict[str, bytes]:
    """What an odd server has: a file of each kind."""
    return odd_server.files()


@pytest.fixture(scope="session")
def right(bodies: dict[str, bytes]) -> dict[str, object]:
    """What a query gets of each of these files."""
    rows = odd_server.RIGHT
    return {"x.csv": rows, "x.parquet": rows, "x.txt": bodies["x.txt"]}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory for what is flushed thousands of times and need not outlive the machine."""
    with tempfile.TemporaryDirectory(dir=in_memory(tmp_path)) as directory:
        yield Path(directory)
