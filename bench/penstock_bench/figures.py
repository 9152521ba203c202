"""What rows of raw runs amount to: medians, spread, ratios, limits. Pure.

A cell is (protocol, step, size, threads). A failed run counts as a failure of its cell, never as a
missing measurement.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_bench.config import Workload

MEASURES = ("wall_s", "cpu_s", "requests", "bytes", "bytes_down", "server_cpu_s", "proxy_cpu_s")

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One combination that peers are compared in."""

    protocol: str
    step: str
    rows: int
    threads: int


@dataclass(frozen=True)
class Summary:
    """Median, least and most of one measure in one cell for one peer."""

    median: float
    low: float
    high: float
    runs: int

    @staticmethod
    def of(values: list[float]) -> Summary | None:
        """None when there is no value."""
        if not values:
            return None
        return Summary(statistics.median(values), min(values), max(values), len(values))


@dataclass
class PeerCell:
    """What one peer did in one cell."""

    measures: dict[str, Summary]
    failures: list[str]


Table = dict[Cell, dict[str, PeerCell]]


def measure(step: Row, name: str) -> float | None:
    """One measure of a step's record; None when it was not taken."""
    if name == "cpu_s":
        return float(step["user_s"]) + float(step["sys_s"])
    if name == "bytes":
        if step.get("bytes_up") is None:
            return None
        return float(step["bytes_up"]) + float(step["bytes_down"])
    value = step.get(name)
    return None if value is None else float(value)


def tabulate(records: Iterable[Row]) -> Table:
    """Raw records to cells. A local file's rows appear under the protocol ``file``."""
    values: dict[tuple[Cell, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    failures: dict[tuple[Cell, str], list[str]] = defaultdict(list)
    for record in records:
        for step in record["steps"]:
            cell = Cell(record["protocol"], step["name"], record["rows"], record["threads"])
            key = (cell, record["peer"])
            values[key]  # a peer that only failed has a cell too
            if step.get("error"):
                failures[key].append(step["error"])
                continue
            for name in MEASURES:
                value = measure(step, name)
                # A recording proxy counts, but it also slows: its runs give no times.
                timed = record["mode"] == "timed" or name in ("requests", "bytes", "bytes_down")
                if value is not None and timed:
                    values[key][name].append(value)
    table: Table = defaultdict(dict)
    for (cell, peer), measures in values.items():
        summaries = {
            name: summary
            for name, series in measures.items()
            if (summary := Summary.of(series)) is not None
        }
        table[cell][peer] = PeerCell(summaries, failures[(cell, peer)])
    return dict(table)


def least_bytes(cells: Mapping[str, PeerCell]) -> float:
    """The least that any peer moved in a cell."""
    moved = [cell.measures["bytes"].median for cell in cells.values() if "bytes" in cell.measures]
    return min(moved, default=0.0)


def ratio(peer: PeerCell | None, ours: PeerCell | None, name: str = "wall_s") -> float | None:
    """How many times more the peer took than we did: above 1 we are better.

    None when either failed in all runs or was not measured.
    """
    if peer is None or ours is None or peer.failures or ours.failures:
        return None
    theirs, mine = peer.measures.get(name), ours.measures.get(name)
    if theirs is None or mine is None or mine.median <= 0:
        return None
    return theirs.median / mine.median


def best_peer(cells: dict[str, PeerCell], ours: str, name: str = "wall_s") -> str | None:
    """The peer with the lowest median, other than ours."""
    medians = {
        peer: cell.measures[name].median
        for peer, cell in cells.items()
        if peer != ours and name in cell.measures and not cell.failures
    }
    return min(medians, key=medians.__getitem__) if medians else None


@dataclass(frozen=True)
class Link:
    """A network between client and store."""

    rtt_s: float
    up_bytes_per_s: float
    down_bytes_per_s: float


def limit_s(
    workload: Workload,
    cell: Cell,
    link: Link,
    local: PeerCell | None,
    sizes: Mapping[str, float],
) -> float | None:
    """The least time that a cell can take.

    Round trips of the smallest request plan, bytes over bandwidth, and DuckDB's own time on a
    local file (which is measured in the same campaign; None without it). ``sizes`` are the bytes
    that `config.Limit.bytes` speaks of, by name.
    """
    step = next(step for step in workload.steps if step.name == cell.step)
    if local is None or "wall_s" not in local.measures:
        return None
    size = sizes.get(step.limit.bytes, 0) if step.limit.bytes else 0
    bandwidth = link.up_bytes_per_s if step.limit.direction == "up" else link.down_bytes_per_s
    trips = step.limit.round_trips(cell.protocol, size)
    return trips * link.rtt_s + size / bandwidth + local.measures["wall_s"].median


def link_shares(
    cell: PeerCell, link_bytes_per_s: float, tcp_bytes_per_s: float | None
) -> tuple[float, float | None] | None:
    """What a cell moved down, over what the link's rate and a bare stream bring in its wall time.

    Round trips before the first byte are part of that time. None where nothing was measured.
    """
    wall, moved = cell.measures.get("wall_s"), cell.measures.get("bytes_down")
    if cell.failures or wall is None or moved is None or wall.median <= 0:
        return None
    rate = moved.median / wall.median
    return rate / link_bytes_per_s, rate / tcp_bytes_per_s if tcp_bytes_per_s else None


def same_answer(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Equality of two answers; floats to nine digits, since threads sum in any order."""
    return len(left) == len(right) and all(
        len(a) == len(b) and all(_same_value(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def _same_value(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) <= 1e-9 * max(abs(left), abs(right), 1e-300)
    return left == right
