"""The tables of `nvme_raw`, from rows made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from penstock_bench import devices, raw, raw_report, ways
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
    assert raw_report.rates(runs, raw.OURS, raw.FIO).told() == "2.000±0.000"
    assert raw_report.rates(runs, raw.OURS, raw.FIO_FIXED).told() == "0.500±0.000"
    assert abs(raw_report.cpu_us(runs[raw.OURS]) - (1 / 3 + 1 / 2 + 1) / 3) < 1e-9
    # 1e9 bytes a second are less than 5e5 commands.
    text = raw_report.text(rows)
    assert "read 4 KiB, depth 32, 1 thread " in text
    assert " 244141 " in text


def test_huge_pages_are_compared_with_huge_pages() -> None:
    cell = {"size_bytes": 256 << 10}
    speeds = ((raw.OURS, 9), (raw.FIO, 10), (raw.FIO_FIXED, 10))
    huge = ((raw.OURS_HUGE, 16), (raw.FIO_HUGE, 20))
    rows = [
        row(peer, run, 100 * part, 0.2, **cell)
        for peer, part in (*speeds, *huge)
        for run in range(2)
    ]
    small, large = raw_report.text(rows).split("\n\n")
    assert "0.900±0.000" in small and "huge" not in small
    title, line = large.splitlines()
    assert title.startswith(f"file{raw.OURS_HUGE.removeprefix(raw.OURS)} ")
    assert "0.800±0.000" in line and "1.600±0.000" in line
    assert "huge" not in raw_report.text(rows[:6])
    # Cells of one small page have no such peers.
    assert {cell.size_bytes for cell in raw.IN_HUGE_PAGES} == {256 << 10}


def test_variants_are_told_best_first() -> None:
    rows = [
        row(peer, 0, commands, 0.2, mode="variants")
        for peer, commands in ((raw.FIO, 100), ("direct/sync", 50), ("uring/thread", 150))
    ]
    lines = raw_report.text(rows).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["uring/thread", "fio", "direct/sync"]
    assert lines[1].endswith("1.500")


def test_ours_reaches_its_part_of_a_peer_or_not() -> None:
    noise = (0.99, 1.0, 1.01, 1.0)

    def chance(part: float, mode: str, peer: str) -> list[float]:
        rows = [
            row(name, run, round(10_000 * factor), 0.2, mode=mode)
            for run, off in enumerate(noise)
            for name, factor in ((raw.OURS, part * off), (peer, 1.0), (raw.FIO_FIXED, 1.0))
        ]
        line = raw_report.text(rows).splitlines()[1]
        words = line.split("±")[1].split()
        return [float(words[0]), float(words[1])]

    error, enough = chance(0.99, "fio", raw.FIO)
    assert 0.003 < error < 0.005 and enough < 0.01
    assert chance(0.91, "fio", raw.FIO)[1] > 0.99
    # What is 0.99 of libxnvme's is not as much.
    assert chance(0.99, "xnvme", raw.THROUGH_XNVME)[1] > 0.9
    assert chance(1.02, "xnvme", raw.THROUGH_XNVME)[1] < 0.01


def test_what_polls_is_compared_with_what_polls() -> None:
    rows = [
        row(peer, run, 100 * part, 0.2, mode="xnvme")
        for peer, part in ((raw.OURS, 9), (raw.OURS_POLLED, 11), (raw.THROUGH_XNVME, 10))
        for run in range(2)
    ]
    sleeping, polling = raw_report.text(rows).split("\n\n")
    assert "0.900±0.000" in sleeping and not sleeping.startswith("file/poll")
    assert "1.100±0.000" in polling and polling.startswith("file/poll ")
    # Rows of before have no such peer, and no such table.
    assert raw_report.text([it for it in rows if it["peer"] != raw.OURS_POLLED]) == sleeping


def test_a_peer_that_failed_is_told_and_the_others_are_compared() -> None:
    def records(mode: str, peers: tuple[str, ...], bad: str) -> list[dict[str, Any]]:
        good = [row(peer, run, 100, 0.2, mode=mode) for peer in peers for run in range(2)]
        return [*(it for it in good if it["peer"] != bad), row(bad, 0, 0, 0, mode=mode, error="no")]

    text = raw_report.text(
        [
            *records("fio", (raw.OURS, raw.FIO, raw.FIO_FIXED), raw.FIO_FIXED),
            *records("xnvme", (raw.OURS,), raw.THROUGH_XNVME),
            *records("variants", (raw.FIO, "direct/sync"), "ioctl/sync"),
            {"device": "loop", "mode": "xnvme", "peer": raw.THROUGH_XNVME, "absent": "nowhere"},
        ]
    )
    against_fio, through, variants, reasons = text.split("\n\n")
    assert "1.000±0.000" in against_fio and against_fio.count("failed") == 2
    assert "failed" in through.splitlines()[1]
    assert variants.splitlines()[-1].split() == ["ioctl/sync", "failed"]
    assert reasons.splitlines() == [
        "failed: file fio fio-fixed: no",
        f"failed: file xnvme {raw.THROUGH_XNVME}: no",
        "failed: file variants ioctl/sync: no",
        f"not measured: loop xnvme {raw.THROUGH_XNVME}: nowhere",
    ]


def test_a_peer_that_does_not_work_does_not_end_the_campaign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, int]] = []

    class Fake(raw.Peers):
        def measure(self, peer: str, device: Path, cell: raw.Cell, seed: int) -> dict[str, Any]:
            asked.append((peer, seed))
            if peer == raw.THROUGH_XNVME:
                raise devices.DeviceError("it has no io_uring")
            return {"commands": 10, "wall_s": 1.0, "cpu_s": 0.1, "user_s": 0, "idle_cpu_s": 0}

    monkeypatch.setattr(raw, "Peers", Fake)
    monkeypatch.setattr(raw, "build", lambda: Path("bench_device"))
    monkeypatch.setattr(raw, "fio_install", lambda: "fio")
    monkeypatch.setattr(raw, "SIZE_BYTES", 1 << 20)
    # A library that can be loaded and is none.
    monkeypatch.setenv(ways.XNVME_VARIABLE, "libc.so.6")
    campaign = raw.Campaign(("file",), 3, True, ("xnvme",), tmp_path, lambda _: None)
    records = campaign.run()
    assert sum("error" in it for it in records) == len(raw.AGAINST_XNVME), "once in each cell"
    own = [it for it in records if it["peer"] == raw.OURS]
    assert [it["seed"] for it in own] == [1, 2, 3] * len(raw.AGAINST_XNVME)
    assert asked.count((raw.OURS, 3)) == len(raw.AGAINST_XNVME)
    assert "it has no io_uring" in raw_report.text(records)
    monkeypatch.setenv(ways.XNVME_VARIABLE, "/nowhere/libxnvme.so")
    absent = raw.Campaign(("file",), 3, True, ("xnvme",), tmp_path, lambda _: None).run()
    assert "not installed" in absent[0]["absent"] and len(absent) == 1


def test_each_run_reads_other_places_and_its_peers_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []
    malloc: list[dict[str, str] | None] = []

    def measured(
        command: list[str], environment: dict[str, str] | None = None
    ) -> tuple[str, float, float]:
        commands.append(command)
        malloc.append(environment)
        fio = {"jobs": [{"read": {"total_ios": 1, "runtime": 1}}]}
        return json.dumps({"commands": 1, "wall_s": 1.0, **fio}), 0.0, 0.0

    monkeypatch.setattr(raw, "measured", measured)
    peers = raw.Peers(Path("bench_device"), "fio", 0.1)
    for peer in (raw.OURS_HUGE, raw.FIO_HUGE):
        peers.measure(peer, Path("/f"), raw.IN_HUGE_PAGES[0], 1)
    assert all("memory=huge" in it for it in commands[:2])
    assert malloc == [None, None, raw.HUGE_MALLOC, raw.HUGE_MALLOC]
    commands.clear()
    for run in range(2):
        for peer in (raw.OURS, raw.THROUGH_XNVME, raw.FIO, raw.FIO_FIXED):
            peers.measure(peer, Path("/f"), raw.AGAINST_XNVME[0], raw.seed_of(run))
    told = [next(word for word in it if "seed" in word) for it in commands]
    of_runs = [[f"seed={run}"] * 4 + [f"--randseed={run}"] * 4 for run in (1, 2)]
    assert told == [*of_runs[0], *of_runs[1]]
    assert not any("randrepeat" in word for it in commands for word in it)


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(devices.DeviceError, match="did not end within"):
        raw.measured(["sleep", "100"], 0.2)
    assert raw.measured(["echo", "x"])[0] == "x\n"


def test_ways_are_those_that_a_kind_of_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ways.XNVME_VARIABLE, "/nowhere/libxnvme.so")
    assert "not installed" in ways.why_no_xnvme()
    assert set(ways.of_paper("file")) == {"file", "sync", "single", "pool", "thread"}
    assert set(ways.of_paper("nvme")) - set(ways.of_paper("loop")) == set(ways.PASSTHROUGH)
    assert {str(way) for way in ways.of_paper("nvme").values()} <= set(map(str, ways.every("nvme")))
    block = Path("/dev/nvme3n1")
    assert ways.parsed("passthrough/pool").node(block) == Path("/dev/ng3n1")
    assert ways.parsed("uring/pool").node(block) == block
    polled = ways.parsed(raw.OURS_POLLED)
    assert polled.url(block, "db=x").endswith("?db=x&io=uring&queues=thread&wait=poll")
    assert (str(polled), polled.queues) == (raw.OURS_POLLED, "thread")
    assert ways.PAPER["sync"].url(block, "db=x") == (
        "nvme:///dev/nvme3n1?db=x&io=direct&queues=sync"
    )
    # Any file can be loaded where libxnvme is looked for; whether it is one, the device tells.
    monkeypatch.setenv(ways.XNVME_VARIABLE, "libc.so.6")
    assert ways.of_paper("file")["xnvme"].url(Path("/f"), "temp") == (
        "nvme:///f?temp&io=xnvme:io_uring&queues=thread"
    )


def test_namespaces_are_named_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(devices.NAMESPACES, raising=False)
    assert devices.NAMESPACES in devices.why_no_namespaces()
    monkeypatch.setenv(devices.NAMESPACES, "/dev/ng7n1 /dev/nvme8n1")
    assert devices.namespaces() == [Path("/dev/nvme7n1"), Path("/dev/nvme8n1")]
    assert "no block device" in devices.why_no_namespaces()


def test_what_the_host_took_is_the_eighth_number() -> None:
    text = "cpu  10 1 5 80 2 0 1 7 3 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert processor_ticks(text) == Ticks(106, 7)
    assert processor_ticks().all > 0


def test_a_batch_holds_no_more_memory_than_fio_has_at_most() -> None:
    assert raw.batch_of(raw.Cell("read", 256 * raw.KIB, 1, 2)) == 1
    assert raw.batch_of(raw.Cell("read", 4 * raw.KIB, 32, 1)) == 64
    assert raw.batch_of(raw.Cell("read", 256 * raw.KIB, 8, 1)) == 16
    assert raw.batch_of(raw.Cell("read", 256 * raw.KIB, 32, 1)) == 32
    for cell in raw.AGAINST_FIO:
        fio_at_most = max(other.size_bytes * other.depth for other in raw.AGAINST_FIO)
        assert raw.batch_of(cell) * cell.size_bytes <= fio_at_most
