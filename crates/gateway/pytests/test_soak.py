"""The bench's soak, for ten seconds on each back end, and with each kind of cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock_bench.soak import MODES, STORES, lane_of, lanes_of, soak
from penstock_bench.soak_worker import UNHEARD, WEIGHTS

LANES = [*lanes_of(STORES, ()), ("s3-fake", "time"), ("google-fake", "plain")]


@pytest.mark.parametrize(("store", "mode"), LANES)
def test_no_object_is_lost_or_torn(store: str, mode: str, scratch: Path) -> None:
    lane = lane_of(store, mode, scratch / f"soak-{store}-{mode}")
    record = soak(lane, mode, 10, 100, lambda _: None)
    assert record["violations"] == []
    assert sum(record["done"].values()) > 100
    sent = set(record["done"]) | set(record["failed"])
    assert sent == set(WEIGHTS) | ({"look"} if MODES[mode] else set())
    assert UNHEARD in sent
