"""The workload `nvme_raw`: random reads and writes of devices, ours beside fio and libxnvme.

Decides which cells are measured and how a run is counted. Peers alternate (A B C, B C A, ...) in
each cell, so a run of ours has a run of fio's beside it. Processor time is of the whole process,
the kernel's threads that work for it included, less that of a run which moves nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock_bench.config import ROOT
from penstock_bench.devices import DeviceError, label, made, run, why_not
from penstock_bench.progress import say
from penstock_bench.records import Records, begin
from penstock_bench.scratch import held
from penstock_bench.ways import PAPER, POLL, XNVME, every, parsed, why_no_xnvme

NAME = "nvme_raw"
KIB = 1 << 10
SIZE_BYTES = 512 << 20
SECONDS, QUICK_SECONDS = 0.5, 0.2
TIMEOUT_S = 60.0
FIO, FIO_FIXED, FIO_HUGE = "fio", "fio-fixed", "fio-huge"
"""fio as it comes, with buffers and files registered and without its clocks, and in huge pages."""
FIO_EXTRA = {
    FIO: (),
    FIO_FIXED: ("--fixedbufs=1", "--registerfiles=1", "--gtod_reduce=1"),
    FIO_HUGE: (),
}
HUGE_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has the C library ask for huge pages, as ours does: fio's own ways take a reserve of them."""
MODES = ("fio", "variants", "xnvme")
RUNS, QUICK_RUNS = 20, 1
OURS = str(PAPER["thread"])
OURS_HUGE = f"{OURS} huge"
OURS_POLLED = str(replace(PAPER["thread"], wait=POLL))
"""libxnvme polls: beside it stands ours that does, too."""
THROUGH_XNVME = str(XNVME)
BATCH_DEPTHS, BATCH_BYTES = 2, 8 << 20
"""A batch of ours is so many times as long as the queue is deep, but no larger than fio's memory in
the largest cell, which is for one depth: where that stays in a cache and more does not, more is
slower."""


@dataclass(frozen=True)
class Cell:
    """What is asked of a device."""

    rw: str
    size_bytes: int
    depth: int
    threads: int


def batch_of(cell: Cell) -> int:
    """How many commands ours are given at once."""
    if cell.depth == 1:
        # A caller with one command at a time waits for each.
        return 1
    most = max(BATCH_BYTES // cell.size_bytes, cell.depth)
    return min(cell.depth * BATCH_DEPTHS, most)


AGAINST_FIO = tuple(
    Cell(rw, size, depth, threads)
    for size in (4 * KIB, 256 * KIB)
    for rw, depths in (("read", (1, 8, 32)), ("write", (8,)))
    for depth in depths
    for threads in (1, 2)
)
IN_HUGE_PAGES = tuple(cell for cell in AGAINST_FIO if cell.size_bytes == 256 * KIB)
"""What a command of one small page has no use for."""
AGAINST_XNVME = tuple(cell for cell in AGAINST_FIO if cell.rw == "read")
BY_VARIANT = (Cell("read", 4 * KIB, 32, 2), Cell("read", 256 * KIB, 8, 2))


def build() -> Path:
    """The measuring program, built anew where that is needed."""
    run(
        "cargo",
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--manifest-path",
        ROOT / "Cargo.toml",
        "-p",
        "penstock-device",
        "--example",
        "bench_device",
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release/examples/bench_device"


def fio_install() -> str:
    """The path of fio, which is installed where it is missing."""
    return run(ROOT / "scripts/peers/fio.sh", "install").strip().splitlines()[-1]


def seed_of(run: int) -> int:
    """From which number the places of a run are drawn: others in each run, the same for each peer.

    Ours and libxnvme's read the very same places; fio draws its own from it.
    """
    return run + 1


def measured(
    command: Sequence[str],
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, float, float]:
    """What a program prints, and its user and system time.

    Raises:
        DeviceError: it failed, or did not end in time.
    """
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    assert child.stdout and child.stderr
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        child.kill()

    limit = threading.Timer(timeout_s, end)
    limit.start()
    with child.stdout, child.stderr:
        output, trouble = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    limit.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    name = Path(command[0]).name
    if is_late.is_set():
        raise DeviceError(f"{name}: it did not end within {timeout_s:g} s")
    if child.returncode:
        cause = (trouble or output).strip()[-300:] or f"it ended with {child.returncode}"
        raise DeviceError(f"{name}: {cause.removeprefix(f'{name}: ')}")
    return output, usage.ru_utime, usage.ru_stime


class Peers:
    """How each peer is called, and how its output is read."""

    def __init__(self, bench: Path, fio: str, seconds: float) -> None:
        self._bench, self._fio, self._seconds = bench, fio, seconds

    def measure(self, peer: str, device: Path, cell: Cell, seed: int) -> dict[str, Any]:
        """One run: commands, seconds, processor time.

        Raises:
            DeviceError: the peer failed, or came to no end.
        """
        once = self._fio_run if peer in FIO_EXTRA else self._own_run
        _, idle_user_s, idle_sys_s = once(peer, device, cell, seed, 0)
        found, user_s, sys_s = once(peer, device, cell, seed, self._seconds)
        return {
            **found,
            "cpu_s": user_s + sys_s,
            "user_s": user_s,
            "idle_cpu_s": idle_user_s + idle_sys_s,
        }

    def _own_run(
        self, peer: str, device: Path, cell: Cell, seed: int, seconds: float
    ) -> tuple[dict[str, Any], float, float]:
        name, _, memory = peer.partition(" ")
        way = parsed(name)
        output, user_s, sys_s = measured(
            [
                str(self._bench),
                str(way.node(device)),
                f"io={way.io}",
                f"queues={way.queues}",
                f"rw={cell.rw}",
                f"size_bytes={cell.size_bytes}",
                f"depth={cell.depth}",
                f"threads={cell.threads}",
                f"batch={batch_of(cell)}",
                f"wait={way.wait}",
                f"memory={memory or 'small'}",
                f"seed={seed}",
                f"seconds={seconds}",
            ]
        )
        return json.loads(output), user_s, sys_s

    def _fio_run(
        self, peer: str, device: Path, cell: Cell, seed: int, seconds: float
    ) -> tuple[dict[str, Any], float, float]:
        how_long = ["--time_based", f"--runtime={int(seconds * 1e3)}ms"]
        output, user_s, sys_s = measured(
            [
                self._fio,
                "--name=bench",
                f"--filename={device}",
                "--ioengine=io_uring",
                "--direct=1",
                f"--rw=rand{cell.rw}",
                f"--bs={cell.size_bytes}",
                f"--iodepth={cell.depth}",
                f"--numjobs={cell.threads}",
                "--thread",
                "--norandommap",
                f"--randseed={seed}",
                "--allow_file_create=0",
                "--group_reporting",
                "--output-format=json",
                *FIO_EXTRA[peer],
                *(how_long if seconds else ["--number_ios=1"]),
            ],
            environment=HUGE_MALLOC if peer == FIO_HUGE else None,
        )
        found = json.loads(output[output.index("{") :])["jobs"][0][cell.rw]
        return (
            {"commands": found["total_ios"], "wall_s": max(found["runtime"], 1) / 1e3},
            user_s,
            sys_s,
        )

    def limits(self, device: Path) -> dict[str, float]:
        """What the device gives at best: bytes by large commands, commands by many small ones."""
        large = self.measure(FIO_FIXED, device, Cell("read", 1024 * KIB, 16, 2), seed_of(0))
        small = self.measure(FIO_FIXED, device, Cell("read", 4 * KIB, 128, 2), seed_of(0))
        return {
            "bytes_per_s": large["commands"] * 1024 * KIB / large["wall_s"],
            "commands_per_s": small["commands"] / small["wall_s"],
        }


class Campaign:
    """One execution of the workload."""

    def __init__(
        self,
        kinds: Sequence[str],
        runs: int,
        quick: bool,
        modes: Sequence[str],
        out: Path,
        progress: Callable[[str], None],
    ) -> None:
        self._kinds, self._runs, self._modes = kinds, runs, modes
        self.records, self._out = Records(NAME, out), out
        self._progress = progress
        self._peers = Peers(build(), fio_install(), QUICK_SECONDS if quick else SECONDS)

    def run(self) -> list[dict[str, Any]]:
        """All of it; gives the records that were also written."""
        with held(self._out) as folder:
            for kind in self._kinds:
                if reason := why_not(kind):
                    say(f"{kind}: not measured: {reason}")
                    continue
                with made(kind, folder, SIZE_BYTES) as device:
                    common = {"device": label(kind), "limits": self._peers.limits(device)}
                    for mode, cell, peers in self._cells(kind):
                        self._measure({**common, "mode": mode}, device, cell, peers)
        return self.records.all

    def _cells(self, kind: str) -> Iterator[tuple[str, Cell, tuple[str, ...]]]:
        if "fio" in self._modes:
            for cell in AGAINST_FIO:
                huge = (OURS_HUGE, FIO_HUGE) if cell in IN_HUGE_PAGES else ()
                yield "fio", cell, (OURS, FIO, FIO_FIXED, *huge)
        if "variants" in self._modes:
            ways = tuple(map(str, every(kind)))
            yield from (("variants", cell, (*ways, FIO)) for cell in BY_VARIANT)
        if "xnvme" in self._modes:
            if reason := why_no_xnvme():
                say(f"{kind}: xnvme: not measured: {reason}")
                absent = {"device": label(kind), "mode": "xnvme", "peer": THROUGH_XNVME}
                self.records.add(begin(), {**absent, "absent": reason})
                return
            peers = (OURS_POLLED, THROUGH_XNVME, OURS)
            yield from (("xnvme", cell, peers) for cell in AGAINST_XNVME)

    def _measure(
        self, common: dict[str, Any], device: Path, cell: Cell, peers: tuple[str, ...]
    ) -> None:
        failed: set[str] = set()
        for number in range(self._runs):
            shift = number % len(peers)
            for peer in (*peers[shift:], *peers[:shift]):
                if peer in failed:
                    continue
                self._progress(
                    f"{common['device']} · {cell} · {peer} · run {number + 1} of {self._runs}"
                )
                began, seed = begin(), seed_of(number)
                try:
                    found = self._peers.measure(peer, device, cell, seed)
                except DeviceError as error:
                    # The others go on; what does not work once is not tried twenty times.
                    say(f"{common['device']}: {peer} failed: {error}")
                    failed.add(peer)
                    found = {"error": str(error)}
                run = {**common, **vars(cell), "peer": peer, "run": number, "seed": seed, **found}
                self.records.add(began, run)
