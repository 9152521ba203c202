"""Traces as text: depth of a request plan, and the lines themselves."""

from typing import Any

import pytest
from penstock_bench import timeline


def request(begin_s: float, end_s: float, **more: object) -> dict[str, Any]:
    base = {"step": "s", "connection": 1, "method": "GET", "status": 206, "range": "bytes=0-1",
            "target": "/bench/run/a%20b.parquet", "bytes_up": 300, "bytes_down": 2000}  # fmt: skip
    return {**base, "begin_s": begin_s, "end_s": end_s, **more}


@pytest.mark.parametrize(
    ("spans", "depth"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (0, 1), (0.5, 1.5)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 1), (0, 3), (1, 2), (2, 4), (3, 5)], 3),
    ],
)
def test_depth_is_the_longest_chain(spans: list[tuple[float, float]], depth: int) -> None:
    assert timeline.round_trips([request(*span) for span in spans]) == depth


def test_targets_are_short_and_keep_what_tells() -> None:
    target = "/devstoreaccount1/bench/run/x.parquet?comp=blocklist&sv=2021&X-Amz-Date=1"
    assert timeline.short_target(target) == "run/x.parquet?comp=blocklist"


def test_steps_are_blocks() -> None:
    lines = [request(1.0, 1.03), request(1.03, 1.06, connection=2), request(0, 1, step="")]
    text = timeline.timeline(lines).splitlines()
    assert text[0] == "s: 2 requests, 2 deep, 2 connections, 60.0 ms"
    assert text[1].split()[:3] == ["0.0", "+", "30.0"]
    assert "run/a b.parquet" in text[1] and text[1].endswith("bytes=0-1")
    assert len(text) == 3
