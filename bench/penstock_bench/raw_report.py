"""The tables of the workload `nvme_raw`. Pure.

Decides how runs become one figure: of each peer means, of ours over another's the ratio of the
means, with its standard error and a paired t-test of runs that were made beside each other. Where a
run of a peer failed its place says so, and the reason stands below.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock_bench.gateway_report import table
from penstock_bench.paired import p_less, series
from penstock_bench.raw import (
    FIO,
    FIO_FIXED,
    FIO_HUGE,
    OURS,
    OURS_HUGE,
    OURS_POLLED,
    THROUGH_XNVME,
)

Key = tuple[str, str, int, int, int]
"""Device, read or write, bytes, depth, threads."""
Value = Callable[[dict[str, Any]], float]
Runs = dict[str, dict[int, dict[str, Any]]]
"""Peer and number of the run to its record."""
BOUNDS = {FIO: 0.95, FIO_FIXED: 0.95, FIO_HUGE: 0.95, THROUGH_XNVME: 1.0}
"""What part of a peer's rate ours is to reach."""


FAILED, NOT_MEASURED = "failed", "-"


def cells(records: list[dict[str, Any]]) -> dict[Key, Runs]:
    """Records by what was asked; a peer of which a run failed has none."""
    found: dict[Key, Runs] = defaultdict(lambda: defaultdict(dict))
    bad = set()
    for record in records:
        if "absent" in record:
            continue
        key = tuple(record[name] for name in ("device", "rw", "size_bytes", "depth", "threads"))
        found[key][record["peer"]][record["run"]] = record
        if "error" in record:
            bad.add((key, record["peer"]))
    for key, peer in bad:
        found[key][peer] = {}
    return found


def instead(runs: Runs, peer: str) -> str:
    """What stands in place of a peer's figure; empty if it has one."""
    return "" if runs.get(peer) else FAILED if peer in runs else NOT_MEASURED


def reasons(records: list[dict[str, Any]]) -> list[str]:
    """What failed or could not be measured, and why; each once."""
    lines: dict[str, int] = defaultdict(int)
    for it in records:
        where = f"{it['device']} {it['mode']} {it['peer']}"
        if "error" in it:
            lines[f"failed: {where}: {it['error']}"] += 1
        if "absent" in it:
            lines[f"not measured: {where}: {it['absent']}"] += 1
    return [line if times == 1 else f"{line} ({times} times)" for line, times in lines.items()]


def rate(record: dict[str, Any]) -> float:
    """Commands a second."""
    return float(record["commands"] / record["wall_s"])


def costs(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Microseconds of processor time for each command, without what starting costs."""
    return {
        run: (it["cpu_s"] - it["idle_cpu_s"]) / it["commands"] * 1e6 for run, it in runs.items()
    }


def mean(runs: dict[int, dict[str, Any]], value: Value) -> float:
    """The mean of a value over the runs of one peer."""
    return statistics.fmean(value(record) for record in runs.values())


def cpu_us(runs: dict[int, dict[str, Any]]) -> float:
    """The mean cost of a command."""
    return statistics.fmean(costs(runs).values())


@dataclass(frozen=True)
class Pairs:
    """Values of ours and of a peer, run by run; a mean of their ratios would favour outliers."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Of the means."""
        return sum(self.ours) / sum(self.theirs)

    def told(self) -> str:
        """The ratio and its standard error."""
        if len(self.ours) < 2:
            return f"{self.ratio:.3f}"
        scale = statistics.fmean(self.theirs)
        rests = (a - self.ratio * b for a, b in zip(self.ours, self.theirs, strict=True))
        error = series([rest / scale for rest in rests]).standard_error
        return f"{self.ratio:.3f}±{abs(error):.3f}"

    def p_above(self, bound: float) -> str:
        """The chance of such values if ours were not above this part of theirs."""
        part = [bound * value for value in self.theirs]
        return f"{p_less(part, self.ours):.2g}" if len(part) > 1 else ""

    def p_below(self) -> str:
        """The chance of such values if ours were not below theirs."""
        return f"{p_less(self.ours, self.theirs):.2g}" if len(self.ours) > 1 else ""


def rates(runs: Runs, ours: str, theirs: str) -> Pairs:
    """Commands a second of both."""
    both = sorted(runs[ours].keys() & runs[theirs].keys())
    return Pairs(*([rate(runs[peer][run]) for run in both] for peer in (ours, theirs)))


def cost_pairs(runs: Runs, ours: str, theirs: str) -> Pairs:
    """What a command costs both."""
    mine, other = costs(runs[ours]), costs(runs[theirs])
    both = sorted(mine.keys() & other.keys())
    return Pairs([mine[run] for run in both], [other[run] for run in both])


def limit(key: Key, limits: dict[str, float]) -> float:
    """Commands a second that the device itself gives."""
    return min(limits["bytes_per_s"] / key[2], limits["commands_per_s"])


def title(key: Key) -> str:
    """What was asked, in words."""
    _, rw, size, depth, threads = key
    return f"{rw} {size >> 10} KiB, depth {depth}, {threads} thread{'s' * (threads > 1)}"


def against(found: dict[Key, Runs], device: str, peers: tuple[str, ...], ours: str = OURS) -> str:
    """Ours beside others at each cell of a device."""
    head = [
        f"{device}{ours.removeprefix(OURS)}",
        "ours/s",
        *(f"{peer}/s" for peer in peers),
        "limit/s",
    ]
    for peer in peers:
        head += [f"ours/{peer}", f"p {BOUNDS[peer]:g}"]
    head += ["CPU us ours", *peers, f"CPU ours/{peers[0]}", "p"]
    rows = [head]
    for key, runs in found.items():
        if key[0] != device or not any(runs.values()) or ours not in runs:
            continue
        missing = {peer: instead(runs, peer) for peer in (ours, *peers)}
        one = next(record for of_peer in runs.values() for record in of_peer.values())
        row = [title(key)]
        row += [missing[peer] or f"{mean(runs[peer], rate):.0f}" for peer in (ours, *peers)]
        row.append(f"{limit(key, one['limits']):.0f}")
        for peer in peers:
            row += compared(runs, ours, peer, missing)
        row += [missing[peer] or f"{cpu_us(runs[peer]):.1f}" for peer in (ours, *peers)]
        if missing[ours] or missing[peers[0]]:
            rows.append([*row, "", ""])
            continue
        pairs = cost_pairs(runs, ours, peers[0])
        rows.append([*row, pairs.told(), pairs.p_below()])
    return table(rows) if len(rows) > 1 else ""


def compared(runs: Runs, ours: str, peer: str, missing: dict[str, str]) -> list[str]:
    """The ratio of ours and a peer's, and its p."""
    if missing[ours] or missing[peer]:
        return ["", ""]
    pairs = rates(runs, ours, peer)
    return [pairs.told(), pairs.p_above(BOUNDS[peer])]


def by_variant(found: dict[Key, Runs], key: Key) -> str:
    """Every way and discipline beside each other."""
    runs = found[key]
    rows = [[f"{key[0]}, {title(key)}", "commands/s", "CPU us", "of fio"]]
    for peer in sorted(filter(runs.get, runs), key=lambda it: -mean(runs[it], rate)):
        values = (f"{mean(runs[peer], rate):.0f}", f"{cpu_us(runs[peer]):.1f}")
        rows.append([peer, *values, rates(runs, peer, FIO).told() if runs.get(FIO) else ""])
    rows += [[peer, FAILED, "", ""] for peer in runs if not runs[peer]]
    return table(rows)


def text(records: list[dict[str, Any]]) -> str:
    """All tables."""
    by_mode = {
        mode: cells([it for it in records if it["mode"] == mode])
        for mode in ("fio", "variants", "xnvme")
    }
    parts = []
    for mode, peers in (("fio", (FIO, FIO_FIXED)), ("xnvme", (THROUGH_XNVME,))):
        devices = dict.fromkeys(key[0] for key in by_mode[mode])
        parts += [against(by_mode[mode], device, peers) for device in devices]
        if mode == "fio":
            huge = (FIO_HUGE, FIO)
            parts += [against(by_mode[mode], device, huge, OURS_HUGE) for device in devices]
        if mode == "xnvme":
            parts += [against(by_mode[mode], device, peers, OURS_POLLED) for device in devices]
    parts += [by_variant(by_mode["variants"], key) for key in by_mode["variants"]]
    parts.append("\n".join(reasons(records)))
    return "\n\n".join(part for part in parts if part)
