"""The tables of the workload `gateway`. Pure.

Decides how runs become one figure (medians) and what is compared: bytes for each CPU second of the
gateway, its memory, and what it adds to the latency of its back end.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from penstock_bench.gateway_campaign import STEPS

Cells = dict[tuple[str, str, str], dict[str, float]]
"""Store, gateway and step to medians."""


def medians(records: list[dict[str, Any]]) -> Cells:
    """Of each value of each cell, over the runs."""
    values: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        for step in record["steps"]:
            cell = values[record["store"], record["peer"], step["name"]]
            for name, value in step.items():
                if name != "name":
                    cell[name].append(value)
    return {
        key: {name: statistics.median(several) for name, several in cell.items()}
        for key, cell in values.items()
    }


def megabytes_per_cpu_s(cell: dict[str, float]) -> float:
    """Bodies moved for each CPU second of the gateway; a tick is the least that /proc tells."""
    return cell["bytes"] / 1e6 / max(cell["gateway_cpu_s"], 0.01)


def table(rows: list[list[str]]) -> str:
    """Aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            word.ljust(width) if column == 0 else word.rjust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def text(records: list[dict[str, Any]]) -> str:
    """All tables."""
    cells = medians(records)
    stores = list(dict.fromkeys(record["store"] for record in records))
    peers = sorted(dict.fromkeys(record["peer"] for record in records))
    parts = [of_store(cells, store, peers) for store in stores]
    parts += [
        f"failed: {record['store']} {record['peer']} run {record['run'] + 1}: {record['error']}"
        for record in records
        if "error" in record
    ]
    return "\n\n".join(parts)


def of_store(cells: Cells, store: str, peers: list[str]) -> str:
    """The table of one back end."""
    head = [store]
    for peer in peers:
        head += [f"{peer} MB/s", "MB/CPU s", "p50 ms", "p99 ms", "RSS MB"]
    rows = [head]
    for step in STEPS:
        row = [step.title]
        for peer in peers:
            cell = cells.get((store, peer, step.name))
            row += columns(cell) if cell else ["-"] * 5
        rows.append(row)
    lines = [table(rows)]
    for peer in peers:
        ours, direct = cells.get((store, peer, "range")), cells.get((store, peer, "range_direct"))
        if ours and direct:
            p50, p99 = (1e3 * (ours[name] - direct[name]) for name in ("p50_s", "p99_s"))
            lines.append(f"{peer} adds to a range GET: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return "\n".join(lines)


def columns(cell: dict[str, float]) -> list[str]:
    """What is shown of a step on a gateway."""
    return [
        f"{cell['bytes'] / 1e6 / cell['wall_s']:.0f}",
        f"{megabytes_per_cpu_s(cell):.0f}",
        f"{cell['p50_s'] * 1e3:.2f}",
        f"{cell['p99_s'] * 1e3:.2f}",
        f"{cell['peak_rss_bytes'] / 1e6:.0f}",
    ]
