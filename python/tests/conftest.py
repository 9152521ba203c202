"""Fixtures: the fakes, by the harness of the extension's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "duckdb/test"))
from harness import Fake, start_fake


@pytest.fixture(scope="session")
def s3() -> Iterator[Fake]:
    """The fake S3."""
    fake = start_fake("s3")
    yield fake
    fake.stop()


@pytest.fixture(scope="session")
def azure() -> Iterator[Fake]:
    """The fake Azure."""
    fake = start_fake("azure")
    yield fake
    fake.stop()
