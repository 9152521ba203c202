"""Fixtures: the lanes that PENSTOCK_TEST_LANES names, all of them by default."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock_bench.gateways import Lane, Running

from gateway_tests.lanes import CLIENT_LANES, LANES, chosen


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory in memory, where there is one: how fast a disk syncs is not asked here."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="penstock-gateway-", dir=parent) as directory:
        yield Path(directory)


@pytest.fixture(scope="session", params=chosen(CLIENT_LANES))
def lane(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Running]:
    """A gateway that runs."""
    kind = LANES[request.param]
    with Lane(kind.gateway, kind.back_end, scratch / f"lane-{request.param}") as running:
        yield running
