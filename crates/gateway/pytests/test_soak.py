"""The bench's soak, for ten seconds on each back end."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock_bench import soak
from penstock_bench.gateways import Lane


@pytest.mark.parametrize("store", [*soak.STORES, "google-fake"])
def test_no_object_is_lost_or_torn(store: str, scratch: Path) -> None:
    record = soak.soak(Lane("penstock", store, scratch / f"soak-{store}"), 10, 100, lambda _: None)
    assert record["violations"] == []
    assert sum(record["done"].values()) > 100
    assert set(soak.WEIGHTS) == set(record["done"]) | set(record["failed"])
