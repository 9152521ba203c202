"""Runs ClickHouse's features on a place and judges each by the same feature on a local MergeTree.

Decides what counts as working: no error, the local answers, and after DROP not one object left, nor
an upload that nobody completed.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock_bench.config import BENCH
from penstock_bench.gateways import Lane, Running

from gateway_tests import lanes
from gateway_tests.parity import GROUPS, Cells, render
from gateway_tests.places import LocalPlace, S3Place

START_TIMEOUT_S = 60
FEATURE_TIMEOUT_S = 120
LEFT_TIMEOUT_S = 15
"""ClickHouse deletes objects after DROP has answered."""
REFUSALS = ("SUPPORT_IS_DISABLED", "NOT_IMPLEMENTED", "TABLE_IS_PERMANENTLY_READ_ONLY")
"""How ClickHouse says that a kind of disk has no such feature."""
TESTS = Path(__file__).resolve().parents[1]

WORKS = "yes"
REFUSED = "no, says ClickHouse"


@dataclass(frozen=True)
class Outcome:
    """What became of one feature on one place."""

    answers: list[str] = field(default_factory=list)
    error: str | None = None
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)


class _Process:
    """A worker; asked one line, answers one line, or is ended."""

    def __init__(self, place: LocalPlace | S3Place) -> None:
        path = os.pathsep.join((str(TESTS), str(BENCH)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway_tests.clickhouse_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        if "ready" not in self.ask(json.dumps({"place": asdict(place)}), START_TIMEOUT_S):
            raise RuntimeError("ClickHouse did not start")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(json.dumps({"error": "ClickHouse ended", "answers": [], "seconds": 0}))

    def ask(self, line: str, timeout_s: float) -> dict[str, Any]:
        """One answer.

        Raises:
            queue.Empty: none in time.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._lines.get(timeout=timeout_s))
        return answer

    def stop(self) -> None:
        """Ends it as it is: a session that hangs cannot be asked to."""
        self._process.kill()
        self._process.wait()


def run(
    place: LocalPlace | S3Place, names: Iterable[str], lane: Running | None
) -> dict[str, Outcome]:
    """Every feature in one session; a new session after one that did not end."""
    outcomes: dict[str, Outcome] = {}
    worker: _Process | None = None
    try:
        for name in names:
            worker = worker or _Process(place)
            try:
                said = worker.ask(name, FEATURE_TIMEOUT_S)
            except queue.Empty:
                worker.stop()
                worker = None
                outcomes[name] = Outcome(error=f"no end within {FEATURE_TIMEOUT_S} s")
                continue
            left = left_on(lane, place) if lane and isinstance(place, S3Place) else []
            outcomes[name] = Outcome(said["answers"], said["error"], said["seconds"], left)
    finally:
        if worker:
            worker.stop()
    return outcomes


def left_on(lane: Running, place: S3Place, timeout_s: float = LEFT_TIMEOUT_S) -> list[str]:
    """What is left in the buckets: objects of tables, and uploads of whatever key.

    Objects that the feature itself made are not asked for, nor are its backups.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        every = lanes.keys(lane, place.bucket)
        left = [key for key in every if not key.startswith(("objects/", "plain/"))]
        for bucket in (place.bucket, place.backups):
            left += [f"{key} (not completed)" for key in lanes.uploads(lane, bucket)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def on_lane(lane: Running, disk_type: str, names: Iterable[str]) -> dict[str, Outcome]:
    """Features on a lane, in buckets of their own."""
    client = lanes.client(lane)
    bucket = f"clickhouse-{disk_type.replace('_', '-')}"
    with tempfile.TemporaryDirectory(prefix="penstock-clickhouse-") as directory:
        place = S3Place(lane.url, lane.access_key, lane.secret_key, bucket, directory, disk_type)
        for name in (place.bucket, place.backups):
            client.create_bucket(Bucket=name)
        return run(place, names, lane)


def locally(names: Iterable[str]) -> dict[str, Outcome]:
    """Features on local files."""
    with tempfile.TemporaryDirectory(prefix="penstock-clickhouse-") as directory:
        return run(LocalPlace(directory), names, None)


def cell(outcome: Outcome, local: Outcome) -> str:
    """What the page says of an outcome."""
    if outcome.error and any(word in outcome.error for word in REFUSALS):
        return REFUSED
    if outcome.error:
        return f"no: {outcome.error}"
    if outcome.answers != local.answers:
        return f"no: wrong answer {outcome.answers} instead of {local.answers}"
    if outcome.left:
        return f"no: leaves {len(outcome.left)} objects or uploads, {outcome.left[0]} the first"
    return WORKS


def every_cell(names: list[str], directory: Path) -> Cells:
    """All features on these lanes, lanes and kinds of disk at once; the judge is run first."""
    local = locally({name: None for group in GROUPS for name in group.features})
    wrong = [f"{name}: {outcome.error}" for name, outcome in local.items() if outcome.error]
    if wrong:
        raise RuntimeError("a local MergeTree cannot: " + "; ".join(wrong))
    cells: Cells = {}
    for name in names:
        kind = lanes.LANES[name]
        with (
            Lane(kind.gateway, kind.back_end, directory / name) as lane,
            ThreadPoolExecutor(len(GROUPS)) as pool,
        ):
            runs = {
                group.name: pool.submit(on_lane, lane, group.name, list(group.features))
                for group in GROUPS
            }
            for group, run_of in runs.items():
                outcomes = run_of.result()
                cells[group, name] = {
                    feature: cell(outcome, local[feature]) for feature, outcome in outcomes.items()
                }
    return cells


def main() -> None:
    """Prints the page."""
    import chdb

    with tempfile.TemporaryDirectory(prefix="penstock-parity-") as directory:
        print(
            render(every_cell(list(lanes.PARITY_LANES), Path(directory)), chdb.engine_version),
            end="",
        )


if __name__ == "__main__":
    main()
