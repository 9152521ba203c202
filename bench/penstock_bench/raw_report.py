"""The tables of the workload `nvme_raw`. Pure.

Decides how runs become one figure: medians of each peer, and of ours over fio the median of the
ratios of runs that were made beside each other; of processor time the ratio of the medians.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from penstock_bench.gateway_report import table
from penstock_bench.raw import FIO, FIO_FIXED, OURS

Key = tuple[str, str, int, int, int]
"""Device, read or write, bytes, depth, threads."""
Value = Callable[[dict[str, Any]], float]
Runs = dict[str, dict[int, dict[str, Any]]]
"""Peer and number of the run to its record."""


def cells(records: list[dict[str, Any]]) -> dict[Key, Runs]:
    """Records by what was asked."""
    found: dict[Key, Runs] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        key = tuple(record[name] for name in ("device", "rw", "size_bytes", "depth", "threads"))
        found[key][record["peer"]][record["run"]] = record
    return found


def rate(record: dict[str, Any]) -> float:
    """Commands a second."""
    return float(record["commands"] / record["wall_s"])


def cpu_us(runs: dict[int, dict[str, Any]]) -> float:
    """Microseconds of processor time for each command, without what starting costs."""
    idle_s = median(runs, lambda record: float(record["idle_cpu_s"]))
    return median(runs, lambda record: (record["cpu_s"] - idle_s) / record["commands"] * 1e6)


def median(runs: dict[int, dict[str, Any]], value: Value) -> float:
    """The median of a value over the runs of one peer."""
    return statistics.median(value(record) for record in runs.values())


def ratio(runs: Runs, ours: str, theirs: str) -> float:
    """The median of our rate over theirs, run by run."""
    both = runs[ours].keys() & runs[theirs].keys()
    return statistics.median(rate(runs[ours][run]) / rate(runs[theirs][run]) for run in both)


def limit(key: Key, limits: dict[str, float]) -> float:
    """Commands a second that the device itself gives."""
    return min(limits["bytes_per_s"] / key[2], limits["commands_per_s"])


def title(key: Key) -> str:
    """What was asked, in words."""
    _, rw, size, depth, threads = key
    return f"{rw} {size >> 10} KiB, depth {depth}, {threads} thread{'s' * (threads > 1)}"


def against_fio(found: dict[Key, Runs], device: str) -> str:
    """Ours beside fio."""
    rows = [[device, "ours/s", "fio/s", "fixed/s", "limit/s", "ours/fio", "ours/fixed",
             "CPU us ours", "fio", "fixed", "CPU ours/fio"]]  # fmt: skip
    for key, runs in found.items():
        if key[0] != device or not {OURS, FIO, FIO_FIXED} <= runs.keys():
            continue
        most = limit(key, next(iter(runs[OURS].values()))["limits"])
        rates = [median(runs[peer], rate) for peer in (OURS, FIO, FIO_FIXED)]
        costs = [cpu_us(runs[peer]) for peer in (OURS, FIO, FIO_FIXED)]
        ratios = [ratio(runs, OURS, peer) for peer in (FIO, FIO_FIXED)]
        row = [title(key), *(f"{it:.0f}" for it in (*rates, most))]
        row += [*(f"{it:.2f}" for it in ratios), *(f"{it:.1f}" for it in costs)]
        rows.append([*row, f"{costs[0] / costs[1]:.2f}"])
    return table(rows) if len(rows) > 1 else ""


def by_variant(found: dict[Key, Runs], key: Key) -> str:
    """Every way and discipline beside each other."""
    runs = found[key]
    rows = [[f"{key[0]}, {title(key)}", "commands/s", "CPU us", "of fio"]]
    for peer in sorted(runs, key=lambda it: -median(runs[it], rate)):
        values = (f"{median(runs[peer], rate):.0f}", f"{cpu_us(runs[peer]):.1f}")
        rows.append([peer, *values, f"{ratio(runs, peer, FIO):.2f}"])
    return table(rows)


def text(records: list[dict[str, Any]]) -> str:
    """All tables."""
    fio = cells([it for it in records if it["mode"] == "fio"])
    variants = cells([it for it in records if it["mode"] == "variants"])
    parts = [against_fio(fio, device) for device in dict.fromkeys(key[0] for key in fio)]
    parts += [by_variant(variants, key) for key in variants]
    return "\n\n".join(part for part in parts if part)
