"""Runs a workload: every peer, size and repetition, and writes one JSON line per run.

Peers alternate (A B C, B C A, ...), each run in a fresh process with a place of its own on a store
that is started anew for each size. Failures are recorded like everything else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock_bench import machine
from penstock_bench.config import BUILD, ROOT, Peer, Step, Workload
from penstock_bench.network import Network, Profile
from penstock_bench.processes import Server, StartError, free_port
from penstock_bench.sql import Endpoint
from penstock_bench.stores import Opened, Store, has_counters

SCHEMA = 1
RUN_TIMEOUT_S = 600


@dataclass(frozen=True)
class Plan:
    """What to run."""

    workload: Workload
    profile: Profile
    stores: dict[str, str]
    """Kind of store for each protocol."""
    peers: tuple[Peer, ...]
    sizes: tuple[int, ...]
    runs: dict[int, int]
    """Timed runs at each size."""
    threads: tuple[int, ...]
    """0 is DuckDB's default."""
    traced: bool
    """One more run of each peer through the recording proxy; stores that keep no counters of
    their own always get it."""


@dataclass(frozen=True)
class Turn:
    """One run to make."""

    protocol: str
    rows: int
    run: int
    threads: int
    peer: Peer
    mode: str
    """``timed``, or ``traced`` for a run through the recording proxy."""


def rotated(peers: tuple[Peer, ...], by: int) -> tuple[Peer, ...]:
    """The same peers, begun with another one each time."""
    shift = by % len(peers) if peers else 0
    return peers[shift:] + peers[:shift]


def turns(plan: Plan, protocol: str, rows: int, *, traced: bool) -> Iterator[Turn]:
    """All runs on one store in their order: one traced run of each peer last, if wanted."""
    peers = tuple(peer for peer in plan.peers if protocol in peer.protocols)
    for run in range(plan.runs[rows]):
        for threads in plan.threads:
            for peer in rotated(peers, run):
                yield Turn(protocol, rows, run, threads, peer, "timed")
    if traced:
        for peer in peers:
            yield Turn(protocol, rows, plan.runs[rows], plan.threads[0], peer, "traced")


class Campaign:
    """One execution of a plan."""

    def __init__(
        self, plan: Plan, network: Network, out: Path, progress: Callable[[str], None]
    ) -> None:
        self._plan, self._network, self._progress = plan, network, progress
        self._name = f"{plan.workload.name}-{plan.profile.name}-{time.strftime('%Y%m%dT%H%M%S')}"
        self.path = out / f"{self._name}.jsonl"
        self._logs = out / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._common = {
            "schema": SCHEMA,
            "campaign": self._name,
            "workload": plan.workload.name,
            "profile": asdict(plan.profile),
            "ceiling": machine.loopback() | network.ceiling(),
            "machine": machine.machine(),
            **machine.commit(),
        }
        self._done = 0
        self.records: list[dict[str, Any]] = []

    def run(self) -> list[dict[str, Any]]:
        """All of it; gives the records that were also written."""
        protocols = ("file", *self._plan.workload.protocols)
        for rows in self._plan.sizes:
            for protocol in protocols:
                if protocol in self._plan.stores:
                    self._on_store(protocol, rows)
        return self.records

    def _on_store(self, protocol: str, rows: int) -> None:
        kind = self._plan.stores[protocol]
        counted = kind == "file" or has_counters(kind)
        traced = not counted or (self._plan.traced and kind != "file")
        all_turns = list(turns(self._plan, protocol, rows, traced=traced))
        if not all_turns:
            return
        # One store for all runs, or one for each.
        groups = [[turn] for turn in all_turns] if self._plan.workload.fresh_store else [all_turns]
        for group in groups:
            with Store(kind, self._network, self._plan.profile, self._logs) as store:
                self._share(protocol, rows, store)
                for turn in group:
                    self._progress(self._describe(turn, kind))
                    self._record(turn, store)

    def _share(self, protocol: str, rows: int, store: Opened) -> None:
        """Writes what all runs on this store read."""
        if not self._plan.workload.shared:
            return
        self._progress(f"{store.kind} · {rows:,} rows · writing what all runs read")
        ours = Peer("penstock", "Penstock", "penstock", (protocol,), {})
        job = self._job(Turn(protocol, rows, 0, 0, ours, "timed"), store, "shared")
        failure = self._process(job | {"prepare": self._plan.workload.shared, "steps": []})
        if failure.get("error"):
            raise StartError(f"what all runs read could not be written: {failure['error']}")

    def _job(self, turn: Turn, store: Opened, place: str) -> dict[str, Any]:
        return {
            "extension": turn.peer.extension,
            "duckdb": turn.peer.duckdb,
            "wrap": turn.peer.wrap,
            "settings": turn.peer.settings,
            "endpoint": asdict(store.endpoint),
            "root": store.endpoint.root(place),
            "shared": store.endpoint.root("shared"),
            "rows": turn.rows,
            "threads": turn.threads,
            "setup": self._plan.workload.setup,
            "stats_url": store.stats_url,
            "server_pid": store.server_pid,
            "proxy_pid": self._network.proxy_pid,
        }

    def _describe(self, turn: Turn, kind: str) -> str:
        number = f"run {turn.run + 1} of {self._plan.runs[turn.rows]}"
        what = number if turn.mode == "timed" else "counting requests"
        return f"{kind} · {turn.rows:,} rows · {turn.peer.title} · {what}"

    def _record(self, turn: Turn, store: Opened) -> None:
        place = f"{turn.peer.name}-{turn.threads}-{turn.run}"
        begin = time.time()
        record = {
            **self._common,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin)),
            "load": os.getloadavg()[0],
            "store": store.kind,
            "protocol": turn.protocol,
            "peer": turn.peer.name,
            "rows": turn.rows,
            "threads": turn.threads,
            "run": turn.run,
            "mode": turn.mode,
            **self._work(turn, store, place),
        }
        record["elapsed_s"] = time.time() - begin
        self.records.append(record)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")

    def _work(self, turn: Turn, store: Opened, place: str) -> dict[str, Any]:
        recorder, mark_url, endpoint = None, None, store.endpoint
        if turn.mode == "traced":
            recorder, endpoint = self._recorder(turn, store)
            mark_url = f"http://127.0.0.1:{endpoint.port}/_mark"
        try:
            job = self._job(turn, replace(store, endpoint=endpoint), place)
            if self._plan.workload.prepare:
                prepared = {"prepare": self._plan.workload.prepare, "steps": []}
                failure = self._process(job | prepared).get("error")
                if failure:
                    return self._failed(f"while preparing: {failure}")
            steps = [asdict(step) for step in self._plan.workload.steps]
            result = self._process(job | {"prepare": [], "steps": steps, "mark_url": mark_url})
            if "error" in result:
                return self._failed(result["error"])
            if recorder:
                _add_counts(result["steps"], self._trace_path(turn))
            return result
        finally:
            if recorder:
                recorder.stop()

    def _recorder(self, turn: Turn, store: Opened) -> tuple[Server, Endpoint]:
        port = free_port()
        trace = self._trace_path(turn)
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.unlink(missing_ok=True)
        command: list[str | Path] = [
            *self._network.prefix,
            sys.executable,
            "-m",
            "penstock_bench.recorder",
            str(port),
            str(store.endpoint.port),
            trace,
        ]
        server = Server(command, port, self._logs / "recorder.log", _environment())
        return server, Endpoint(turn.protocol, port=port)

    def _trace_path(self, turn: Turn) -> Path:
        name = f"{turn.protocol}-{turn.peer.name}-{turn.rows}.trace.jsonl"
        return self.path.with_suffix("") / name

    def _process(self, job: dict[str, Any]) -> dict[str, Any]:
        command = [*self._network.prefix, sys.executable, "-m", "penstock_bench.worker"]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(job),
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
                env=_environment(job["duckdb"]),
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no end within {RUN_TIMEOUT_S} s"}
        if done.returncode:
            tail = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            return {"error": tail[0][:400]}
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def _failed(self, error: str) -> dict[str, Any]:
        """A run that broke before its steps: each of them failed."""
        steps: tuple[Step, ...] = self._plan.workload.steps
        return {"error": error, "steps": [{"name": step.name, "error": error} for step in steps]}


def _add_counts(steps: list[dict[str, Any]], trace: Path) -> None:
    """Puts what the recording proxy saw into the steps' records."""
    seen = [json.loads(line) for line in trace.read_text().splitlines()]
    for step in steps:
        mine = [line for line in seen if line["step"] == step["name"]]
        step["requests"] = len(mine)
        step["bytes_up"] = sum(line["bytes_up"] for line in mine)
        step["bytes_down"] = sum(line["bytes_down"] for line in mine)
        step["connections"] = len({line["connection"] for line in mine})


def _environment(duckdb: str | None = None) -> dict[str, str]:
    """The environment of a process of the bench, in which another DuckDB goes before the venv's.

    Raises:
        StartError: this DuckDB or the extension for it is not there.
    """
    path = [str(ROOT / "bench")]
    if duckdb:
        wheel = BUILD / f"duckdb-wheel-{duckdb}"
        extension = BUILD / f"duckdb/v{duckdb}/penstock.duckdb_extension"
        if not (wheel.is_dir() and extension.is_file()):
            command = f"scripts/duckdb-test-other.sh {duckdb} true"
            raise StartError(f"DuckDB {duckdb} with Penstock is not here: run {command}")
        path.append(str(wheel))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
