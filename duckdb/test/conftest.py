"""Fixtures: the fakes of the session, clean for each test."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from harness import Fake, connect, start_fake
from nvme import NOT_RUN


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


@pytest.fixture
def con(fakes: dict[str, Fake]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the extension and a secret for each fake."""
    connection = connect()
    for kind, fake in fakes.items():
        connection.execute(f"CREATE SECRET {kind}_secret ({fake.secret})")
    yield connection
    connection.close()
