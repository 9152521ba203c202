"""The workload `nvme`: DuckDB on a device without a file system, beside stock DuckDB on ext4.

The experiments of the paper on DuckDB over xNVMe: a scan of TPC-H's customer at several scale
factors, by every way to the device; and what it left open: bulk loads, and spilling. Decides which
cells are measured and on what. Every run is a fresh process with the page cache dropped; peers
alternate (A B C, B C A, ...), so each run of ours has one of stock DuckDB beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_bench import customer
from penstock_bench.config import BENCH, BUILD
from penstock_bench.contained import contained
from penstock_bench.contained import why_not as why_not_contained
from penstock_bench.devices import DeviceError, label, made, run, why_not
from penstock_bench.progress import say
from penstock_bench.records import Records, begin
from penstock_bench.scratch import held
from penstock_bench.ways import XNVME_PEER, of_paper, why_no_xnvme

NAME = "nvme"
SIZE_BYTES = 5 << 28
"""Of which stock DuckDB spills to nine tenths of what its ext4 has free: of 1 GiB that is less than
the join of the largest scale factor takes."""
SCALES, QUICK_SCALES = (1, 4, 16), (1,)
RUNS, QUICK_RUNS = 20, 2
STOCK = "stock"
OURS, CACHED = "thread", "file"
CONTAINED = "contained"
SCAN, LOOKUP = "scan", "lookup"
MODES = (SCAN, LOOKUP, "load", "spill", CONTAINED)
KEY_STEP = 7919
"""From the row that one run looks up to that of the next."""
SPILL_MEMORY = "150MB"
CONTAINED_BYTES = 512 << 20
"""What a process that spills may hold with the page cache it fills: there `spill` has all the
memory of the machine for pages that DuckDB's own limit does not count."""
TIMEOUT_S = 300


@dataclass(frozen=True)
class Place:
    """Where a peer keeps its databases and spills."""

    databases: str
    spill: str

    def database(self, scale: int) -> str:
        """What to attach."""
        return self.databases.format(name=f"sf{scale}")


@contextmanager
def ext4(kind: str, folder: Path) -> Iterator[Path]:
    """A folder on ext4: this checkout's own for a file, else a fresh one on a device."""
    if kind == "file":
        found = run("stat", "--file-system", "--format=%T", folder).strip()
        if found != "ext2/ext3":
            raise DeviceError(f"{folder} lies on {found}, not on ext4")
        place = folder / "stock"
        place.mkdir(exist_ok=True)
        try:
            yield place
        finally:
            for path in place.iterdir():
                path.unlink()
            place.rmdir()
        return
    place = folder / "mount"
    place.mkdir(exist_ok=True)
    with made(kind, folder / "stock", SIZE_BYTES, filled=False, number=1) as device:
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        run("mount", device, place)
        try:
            yield place
        finally:
            run("umount", place)
    place.rmdir()


@contextmanager
def places(kind: str, folder: Path, scales: Sequence[int]) -> Iterator[dict[str, Place]]:
    """The same databases on ext4 and in a volume on a device of the same kind."""
    binary = BUILD / "penstock"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stock = stack.enter_context(ext4(kind, folder))
        device = stack.enter_context(made(kind, folder, SIZE_BYTES, filled=False))
        run(binary, "nvme", "format", device, "--force")
        for scale in scales:
            database = stock / f"sf{scale}.duckdb"
            customer.make(database, scale)
            run(binary, "nvme", "import", device, database, "--db", f"sf{scale}")
        found = {STOCK: Place(f"{stock}/{{name}}.duckdb", f"{stock}/spill")}
        for name, way in of_paper(kind).items():
            found[name] = Place(way.url(device, "db={name}"), way.url(device, "temp"))
        yield found


def drop_caches() -> None:
    """What was read is forgotten."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def measure(job: dict[str, Any], prefix: Sequence[str] = ()) -> dict[str, Any]:
    """One run in a process of its own, started by the words of `prefix`."""
    drop_caches()
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "penstock_bench.nvme_worker"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(BENCH)},
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:400]}
    return dict(json.loads(done.stdout))


class Campaign:
    """One execution of the workload."""

    def __init__(
        self,
        kinds: Sequence[str],
        scales: Sequence[int],
        runs: int,
        modes: Sequence[str],
        out: Path,
        progress: Callable[[str], None],
    ) -> None:
        self._kinds, self._scales, self._runs, self._modes = kinds, scales, runs, modes
        self.records = Records(NAME, out)
        self._out = out
        self._progress = progress

    def run(self) -> list[dict[str, Any]]:
        """All of it; gives the records that were also written."""
        if os.geteuid() != 0:
            raise DeviceError("dropping the page cache takes root")
        with held(self._out) as folder:
            for kind in self._kinds:
                if reason := why_not(kind):
                    say(f"{kind}: not measured: {reason}")
                    continue
                with places(kind, folder, self._scales) as found:
                    self._modes_of(kind, found)
        return self.records.all

    def _modes_of(self, kind: str, found: dict[str, Place]) -> None:
        if SCAN in self._modes and (reason := why_no_xnvme()):
            say(f"{kind}: xnvme: not measured: {reason}")
            absent = {"device": label(kind), "mode": SCAN, "peer": XNVME_PEER}
            self.records.add(begin(), {**absent, "absent": reason})
        for mode in self._modes:
            if mode == CONTAINED and (reason := why_not_contained()):
                say(f"{kind}: {mode}: not measured: {reason}")
                continue
            self._mode(kind, mode, found)

    def _mode(self, kind: str, mode: str, found: dict[str, Place]) -> None:
        # Loads and spills are of the largest; all but scans by the discipline that is the default
        # and through the page cache.
        scales = self._scales if mode in (SCAN, LOOKUP) else self._scales[-1:]
        peers = tuple(found) if mode == SCAN else (STOCK, OURS, CACHED)
        for scale in scales:
            for number in range(self._runs):
                shift = number % len(peers)
                for peer in (*peers[shift:], *peers[:shift]):
                    self._progress(f"{kind} · {mode} · SF {scale} · {peer} · run {number + 1}")
                    self._record(kind, mode, scale, number, peer, found)

    def _record(
        self, kind: str, mode: str, scale: int, number: int, peer: str, found: dict[str, Place]
    ) -> None:
        place = found[peer]
        job = {
            "mode": "spill" if mode == CONTAINED else mode,
            "extension": peer != STOCK,
            "database": place.database(scale),
            "source": found[STOCK].database(scale),
            "loaded": place.databases.format(name="loaded"),
            "spill": place.spill,
            "memory": SPILL_MEMORY,
            "rows": customer.rows(scale),
            "key": 1 + number * KEY_STEP % customer.rows(scale),
        }
        cell = {"device": label(kind), "mode": mode, "scale": scale, "run": number, "peer": peer}
        began = begin()
        bounds = contained(CONTAINED_BYTES) if mode == CONTAINED else nullcontext(())
        with bounds as prefix:
            self.records.add(began, {**cell, **measure(job, prefix)})
