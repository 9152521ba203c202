"""The tables of `nvme_raw`, from rows made by hand."""

from __future__ import annotations

from typing import Any

from penstock_bench import raw, raw_report
from penstock_bench.records import Ticks, processor_ticks


def row(peer: str, run: int, commands: int, cpu_s: float, **more: object) -> dict[str, Any]:
    """A record of a run of one second."""
    cell = {"rw": "read", "size_bytes": 4096, "depth": 32, "threads": 1}
    limits = {"bytes_per_s": 1e9, "commands_per_s": 5e5}
    common = {"device": "file", "mode": "fio", "limits": limits, **cell, "peer": peer, "run": run}
    counts = {"commands": commands, "wall_s": 1.0, "cpu_s": cpu_s, "idle_cpu_s": 0.1}
    return {**common, **counts, **more}


def test_ratios_are_of_runs_beside_each_other() -> None:
    # The machine is slower in each run: the ratio is not.
    rows = [
        row(peer, run, factor * (3000 - 1000 * run), 0.1 + factor * 1e-3)
        for peer, factor in ((raw.OURS, 2), (raw.FIO, 1), (raw.FIO_FIXED, 4))
        for run in range(3)
    ]
    found = raw_report.cells(rows)
    runs = next(iter(found.values()))
    assert raw_report.ratio(runs, raw.OURS, raw.FIO) == 2
    assert raw_report.ratio(runs, raw.OURS, raw.FIO_FIXED) == 0.5
    assert abs(raw_report.cpu_us(runs[raw.OURS]) - 0.5) < 1e-9
    # 1e9 bytes a second are less than 5e5 commands.
    text = raw_report.text(rows)
    assert "read 4 KiB, depth 32, 1 thread " in text
    assert " 244141 " in text


def test_variants_are_told_best_first() -> None:
    rows = [
        row(peer, 0, commands, 0.2, mode="variants")
        for peer, commands in ((raw.FIO, 100), ("direct/sync", 50), ("uring/thread", 150))
    ]
    lines = raw_report.text(rows).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["uring/thread", "fio", "direct/sync"]
    assert lines[1].endswith("1.50")


def test_what_the_host_took_is_the_eighth_number() -> None:
    text = "cpu  10 1 5 80 2 0 1 7 3 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert processor_ticks(text) == Ticks(106, 7)
    assert processor_ticks().all > 0
