"""Modes of a workload: named sets of configurations, thread counts and steps. Pure.

They compare DuckDB's own client with the same client wrapped, in the configurations that the
parallel-read layers of others document, and with Penstock's own file system.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock_bench.config import ConfigError, Peer, load_peers

BASELINE = "httpfs"
THREADS = (1, 2, 4)
SWEEP = (1, 2, 4, 8, 16)

Settings = dict[str, str | bool | int]

# DuckDB's cache would answer every read but the first.
_BASE: Settings = {"enable_external_file_cache": False}
# What the documented layer does unless it is told otherwise.
_SEED: Settings = {
    "auto_fanout_enabled": False,
    "auto_fanout_overhead_adaptive_enabled": False,
    "auto_fanout_overhead_ms": 500,
}


@dataclass(frozen=True)
class Mode:
    """What one run of the bench compares."""

    name: str
    title: str
    threads: tuple[int, ...]
    steps: tuple[str, ...]
    peers: tuple[Peer, ...]


def plain(name: str, title: str) -> Peer:
    """An extension as it is."""
    return Peer(name, title, name, ("s3",), dict(_BASE))


def wrapped(name: str, **settings: str | bool | int) -> Peer:
    """The extension httpfs wrapped, with these settings of ``penstock_parallel_read_*``."""
    chosen = {f"penstock_parallel_read_{key}": value for key, value in settings.items()}
    return Peer(name, f"wrapped: {name}", "httpfs", ("s3",), {**_BASE, **chosen}, wrap=True)


def seed(name: str, **settings: str | bool | int) -> Peer:
    """The same, beginning with the documented layer's defaults instead of ours."""
    return wrapped(name, **{**_SEED, **settings})


def adaptive(name: str = "auto-adaptive", **settings: str | bool | int) -> Peer:
    """The cost model with a learned penalty."""
    learns: Settings = {
        "auto_fanout_enabled": True,
        "auto_fanout_overhead_adaptive_enabled": True,
    }
    return seed(name, **{**learns, **settings})


HTTPFS = plain("httpfs", "httpfs")
NATIVE = plain("penstock", "Penstock")
DEFAULTS = wrapped("wrap")
RECOMMENDED = seed("recommended", recommended_preset_enabled=True)
AUTO = seed("auto", auto_fanout_enabled=True)
ADAPTIVE = adaptive()
OVERHEADS = tuple(
    seed(f"overhead-{ms}", auto_fanout_enabled=True, auto_fanout_overhead_ms=ms)
    for ms in (0, 50, 100, 250, 500, 1000)
)
FANOUTS = tuple(seed(f"fanout-{fanout}", max_fanout=fanout) for fanout in SWEEP)
POOLS = tuple(seed(f"pool-{threads}", io_threads=threads) for threads in SWEEP)
POOL_FANOUTS = tuple(
    seed(f"pool-{threads}-fanout-{fanout}", io_threads=threads, max_fanout=fanout)
    for threads in (2, 4, 8, 16)
    for fanout in (2, 4, 8)
)
_MAIN = (HTTPFS, RECOMMENDED, ADAPTIVE, DEFAULTS, NATIVE)
_READS = ("blob", "blob_2", "blob_3")

MODES = {
    mode.name: mode
    for mode in (
        Mode(
            "full",
            "every configuration",
            THREADS,
            _READS,
            (*_MAIN, AUTO, *OVERHEADS, *FANOUTS, *POOLS),
        ),
        Mode("recommended", "the preset", THREADS, _READS, (HTTPFS, RECOMMENDED)),
        Mode("auto-adaptive", "the cost model", THREADS, _READS, (HTTPFS, AUTO, ADAPTIVE)),
        Mode("overhead-sweep", "the model's penalty", (1,), _READS, (HTTPFS, *OVERHEADS)),
        Mode("low-threads", "few threads of DuckDB", THREADS, _READS, _MAIN),
        Mode("single-scan", "one scan of one object", THREADS, ("scan",), _MAIN),
        Mode("pool-tasks", "four objects, size of the pool", (4,), ("tasks",), (HTTPFS, *POOLS)),
        Mode("pool-fanout", "pool and fan-out", (1,), _READS, (HTTPFS, *POOL_FANOUTS)),
        Mode("fanout-sweep", "a fixed fan-out", (1,), _READS, (HTTPFS, *FANOUTS)),
    )
}


DEFAULT = "low-threads"
"""The mode of who names none."""


def find(name: str) -> Mode:
    """The mode of this name."""
    if name not in MODES:
        raise ConfigError(f"no mode {name}; there are: {', '.join(MODES)}")
    return MODES[name]


def peers_by_name() -> dict[str, Peer]:
    """The peers of other workloads: those of ``bench/peers``, and the wrapped ones by name only.

    There DuckDB's cache is on, as it is for the others.
    """
    found = load_peers()
    for peer in MODES["full"].peers:
        settings = {key: value for key, value in peer.settings.items() if key not in _BASE}
        found.setdefault(peer.name, replace(peer, settings=settings, by_name=True))
    return found


@dataclass(frozen=True)
class Cell:
    """What one configuration did at one thread count; None where it failed."""

    mb_per_s: float | None
    cpu_percent: float
    requests: float
    machine_percent: float | None = None
    """Of all processors, what client, store and proxy took together; None where not all is told."""


def cells(records: Iterable[dict[str, Any]]) -> dict[str, dict[int, Cell]]:
    """Configuration, then threads, in the order of the records; medians over runs and steps."""
    steps: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    cores: int | None = None
    for record in records:
        cores = record.get("machine", {}).get("cores", cores)
        if record["mode"] == "timed":
            steps[record["peer"]][record["threads"]] += record["steps"]
    return {
        peer: {threads: _cell(found, cores) for threads, found in sorted(by_threads.items())}
        for peer, by_threads in steps.items()
    }


def _cell(steps: list[dict[str, Any]], cores: int | None) -> Cell:
    if not steps or any(step.get("error") for step in steps):
        return Cell(None, 0, 0)
    return Cell(
        statistics.median(step["bytes_down"] / step["wall_s"] / 1e6 for step in steps),
        statistics.median((step["user_s"] + step["sys_s"]) / step["wall_s"] for step in steps)
        * 100,
        statistics.median(step["requests"] for step in steps),
        _machine_percent(steps, cores),
    )


def _machine_percent(steps: list[dict[str, Any]], cores: int | None) -> float | None:
    """Whether the processors could have done more in that time."""
    if not cores or any("server_cpu_s" not in step for step in steps):
        return None
    shares: list[float] = [
        (step["user_s"] + step["sys_s"] + step["server_cpu_s"] + step.get("proxy_cpu_s", 0.0))
        / (step["wall_s"] * cores)
        for step in steps
    ]
    return statistics.median(shares) * 100


def _rows(table: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def summary(records: Iterable[dict[str, Any]]) -> str:
    """One line for each configuration and thread count."""
    table = [["configuration", "threads", "p50 MB/s", "CPU %", "requests", "machine %"]]
    for peer, by_threads in cells(records).items():
        for threads, cell in by_threads.items():
            speed = "failed" if cell.mb_per_s is None else f"{cell.mb_per_s:.0f}"
            whole = "-" if cell.machine_percent is None else f"{cell.machine_percent:.0f}"
            client, requests = f"{cell.cpu_percent:.0f}", f"{cell.requests:.0f}"
            table.append([peer, str(threads), speed, client, requests, whole])
    return _rows(table)


def compare(records: Iterable[dict[str, Any]]) -> str:
    """Thread counts beside each other, with the difference from plain httpfs."""
    found = cells(records)
    threads = sorted({count for by_threads in found.values() for count in by_threads})
    table = [["configuration", *(f"threads={count}" for count in threads)]]
    for peer, by_threads in found.items():
        row = [peer]
        for count in threads:
            cell = by_threads.get(count)
            base = found.get(BASELINE, {}).get(count)
            if cell is None or cell.mb_per_s is None:
                row.append("failed" if cell else "-")
            elif peer == BASELINE or base is None or base.mb_per_s is None:
                row.append(f"{cell.mb_per_s:.0f} MB/s")
            else:
                gain = (cell.mb_per_s / base.mb_per_s - 1) * 100
                row.append(f"{cell.mb_per_s:.0f} ({gain:+.1f} %)")
        table.append(row)
    return _rows(table)
