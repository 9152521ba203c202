"""The tables of the workload `nvme`. Pure.

Decides what is told of paired runs: mean and standard error, ours over stock DuckDB's, and the
chance of such differences if ours were not faster (paired t-test, one-sided).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from penstock_bench.gateway_report import table
from penstock_bench.nvme import CONTAINED, STOCK
from penstock_bench.paired import p_less, series

Cell = dict[str, dict[int, float]]
"""Peer and number of the run to seconds."""
Key = tuple[str, str, int]
"""Device, statement, scale factor."""


def cells(records: list[dict[str, Any]]) -> dict[Key, Cell]:
    """Seconds by what was measured."""
    found: dict[Key, Cell] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        for statement, seconds in record.get("seconds", {}).items():
            what = statement + (f", {CONTAINED}" if record["mode"] == CONTAINED else "")
            key = (record["device"], what, record["scale"])
            found[key][record["peer"]][record["run"]] = seconds
    return found


def row(peer: str, cell: Cell) -> list[str]:
    """What is told of one peer."""
    own = series(list(cell[peer].values()))
    words = [peer, f"{own.mean * 1e3:.1f}", f"{own.standard_error * 1e3:.1f}", str(len(cell[peer]))]
    both = sorted(cell[peer].keys() & cell.get(STOCK, {}).keys())
    if peer == STOCK or len(both) < 2:
        return [*words, "", ""]
    ours, stock = ([cell[name][run] for run in both] for name in (peer, STOCK))
    return [*words, f"{sum(ours) / sum(stock):.3f}", f"{p_less(ours, stock):.2g}"]


def of_cell(key: Key, cell: Cell) -> str:
    """The table of one cell, stock DuckDB first."""
    device, statement, scale = key
    head = [f"{device}: {statement}, SF {scale}", "mean ms", "error ms", "runs", "of stock", "p"]
    peers = sorted(cell, key=lambda peer: (peer != STOCK, sum(cell[peer].values())))
    return table([head, *(row(peer, cell) for peer in peers)])


def text(records: list[dict[str, Any]]) -> str:
    """All tables, and what failed."""
    parts = [of_cell(key, cell) for key, cell in cells(records).items()]
    parts += [
        f"failed: {it['device']} {it['mode']} SF {it['scale']} {it['peer']} run {it['run'] + 1}: "
        f"{it['error']}"
        for it in records
        if "error" in it
    ]
    parts += [
        f"not measured: {it['device']} {it['mode']} {it['peer']}: {it['absent']}"
        for it in records
        if "absent" in it
    ]
    return "\n\n".join(parts)
