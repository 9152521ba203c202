"""The workload `gateway`: S3 gateways over the same back ends, and what each costs.

Decides which steps are run on which gateway and what is recorded of them. Gateways alternate
(A B C, B C A, ...), each run on a back end of its own that is started anew. Everything is sent by
`load`; the requests are signed once, bodies with UNSIGNED-PAYLOAD, which is the cheapest for every
gateway.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_bench import load, machine
from penstock_bench.gateways import GatewayError, Lane, Running
from penstock_bench.processes import cpu_s, peak_rss_bytes, reset_peak_rss
from penstock_bench.sql import AZURITE_ACCOUNT
from penstock_bench.stores import make_s3_bucket, shared_key

NAME = "gateway"
SCHEMA = 1
BUCKET = "bench"
KIB, MIB = 1 << 10, 1 << 20
PEERS = ("penstock", "s3proxy", "versitygw", "bare")
STORES = ("directory", "azure-fake", "s3-fake")
FAKE_FLAGS = ("--anonymous",)
"""The back end itself is asked without signing, to tell what the gateway adds."""
KEYS = 16
"""Names that PUTs go round, so that a store in memory stays small."""


@dataclass(frozen=True)
class Step:
    """One kind of request, many times."""

    name: str
    title: str
    method: str
    size: int
    count: int
    quick_count: int
    connections: int
    ranged: bool = False
    direct: bool = False
    """Also asked of the back end itself, where it has an address."""


STEPS = (
    Step("get_64k", "GET 64 KiB", "GET", 64 * KIB, 8000, 1000, 16),
    Step("get_1m", "GET 1 MiB", "GET", MIB, 2000, 200, 8),
    Step("get_16m", "GET 16 MiB", "GET", 16 * MIB, 128, 16, 4),
    Step("get_256m", "GET 256 MiB", "GET", 256 * MIB, 8, 2, 2),
    Step("put_64k", "PUT 64 KiB", "PUT", 64 * KIB, 2000, 400, 16),
    Step("put_1m", "PUT 1 MiB", "PUT", MIB, 500, 100, 8),
    Step("put_16m", "PUT 16 MiB", "PUT", 16 * MIB, 48, 16, 4),
    Step("put_256m", "PUT 256 MiB", "PUT", 256 * MIB, 4, 2, 2),
    Step("range", "range GET 64 KiB, one by one", "GET", 64 * KIB, 2000, 300, 1, True, True),
    Step("uploads", "64 uploads of 16 MiB at once", "PUT", 16 * MIB, 64, 64, 64),
)
BODY = memoryview(os.urandom(256 * MIB))


class Campaign:
    """One execution of the workload."""

    def __init__(
        self,
        stores: Sequence[str],
        peers: Sequence[str],
        runs: int,
        quick: bool,
        out: Path,
        progress: Callable[[str], None],
    ) -> None:
        self._stores, self._peers, self._runs, self._quick = stores, peers, runs, quick
        self._name = f"{NAME}-loopback-{time.strftime('%Y%m%dT%H%M%S')}"
        self.path, self._scratch = out / f"{self._name}.jsonl", out / self._name
        self._progress = progress
        self._common = {
            "schema": SCHEMA,
            "campaign": self._name,
            "workload": NAME,
            "ceiling": machine.loopback(),
            "machine": machine.machine(),
            **machine.commit(),
        }
        self.records: list[dict[str, Any]] = []

    def run(self) -> list[dict[str, Any]]:
        """All of it; gives the records that were also written."""
        for store in self._stores:
            for run in range(self._runs):
                shift = run % len(self._peers)
                for peer in (*self._peers[shift:], *self._peers[:shift]):
                    self._progress(f"{store} · {peer} · run {run + 1} of {self._runs}")
                    self._record(store, peer, run)
        return self.records

    def _record(self, store: str, peer: str, run: int) -> None:
        record: dict[str, Any] = {
            **self._common,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
            "store": store,
            "peer": peer,
            "run": run,
        }
        lane = Lane(peer, store, self._scratch, fake_flags=FAKE_FLAGS)
        try:
            with lane as server:
                record["steps"] = list(self._steps(server, lane.back_end, store))
        except (GatewayError, load.LoadError) as error:
            record["error"] = str(error)
            record.setdefault("steps", [])
        self.records.append(record)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")

    def _steps(self, server: Running, back_end: Running | None, store: str) -> list[dict[str, Any]]:
        prepare(server)
        done = []
        for step in STEPS:
            count = step.quick_count if self._quick else step.count
            self._progress(f"{store} · {step.title}")
            done.append(measure(server, back_end, step, count))
            if step.direct and back_end is not None:
                done.append(direct(back_end, store, step, count))
        return done


def prepare(server: Running) -> None:
    """Makes the bucket and what is read, and lets the gateway warm up."""
    make_s3_bucket(server.url, BUCKET)
    for step in STEPS:
        if step.method == "GET":
            load.run(server, [upload(server, f"read-{step.name}", object_size(step))], 1, 1)
    # A virtual machine compiles what it runs often; two seconds of it are not measured.
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        for step in STEPS[:2]:
            load.run(server, requests(server, step), 200, step.connections)
        load.run(server, [upload(server, f"warm-{n}", MIB) for n in range(KEYS)], 50, 8)


def object_size(step: Step) -> int:
    """Bytes of the object that a step reads."""
    return 16 * MIB if step.ranged else step.size


def upload(server: Running, key: str, size: int) -> load.Prepared:
    """One PUT."""
    return load.prepared(server, "PUT", f"/{BUCKET}/{key}", BODY[:size])


def requests(server: Running, step: Step) -> list[load.Prepared]:
    """The requests of a step, to go round."""
    if step.method == "PUT":
        names = max(KEYS, step.connections)
        return [upload(server, f"{step.name}-{number}", step.size) for number in range(names)]
    path = f"/{BUCKET}/read-{step.name}"
    if not step.ranged:
        return [load.prepared(server, "GET", path, length=step.size)]
    return [
        load.prepared(server, "GET", path, headers={"Range": span}, status=206, length=step.size)
        for span in ranges(step)
    ]


def ranges(step: Step) -> list[str]:
    """Ranges that go through the object in large strides."""
    parts = object_size(step) // step.size
    order = [(number * 97) % parts * step.size for number in range(parts)]
    return [f"bytes={begin}-{begin + step.size - 1}" for begin in order]


def measure(server: Running, back_end: Running | None, step: Step, count: int) -> dict[str, Any]:
    """One step on a gateway."""
    wanted = requests(server, step)
    reset_peak_rss(server.pid)
    cpu = cpu_s(server.pid)
    behind = cpu_s(back_end.pid) if back_end else 0.0
    outcome = load.run(server, wanted, count, step.connections)
    return {
        "name": step.name,
        "wall_s": outcome.wall_s,
        "requests": count,
        "bytes": outcome.bytes,
        "gateway_cpu_s": cpu_s(server.pid) - cpu,
        "back_end_cpu_s": cpu_s(back_end.pid) - behind if back_end else 0.0,
        "client_cpu_s": outcome.client_cpu_s,
        "peak_rss_bytes": peak_rss_bytes(server.pid),
        "p50_s": outcome.percentile_s(0.5),
        "p99_s": outcome.percentile_s(0.99),
    }


def direct(back_end: Running, store: str, step: Step, count: int) -> dict[str, Any]:
    """The same requests to the back end itself, signed where it asks for that."""
    path, version = f"/{BUCKET}/read-{step.name}", {}
    if store.startswith("az"):
        path, version = f"/{AZURITE_ACCOUNT}{path}", {"x-ms-version": "2021-12-02"}
    wanted = []
    for span in ranges(step):
        headers = {"Range": span, **version}
        if store == "azurite":
            headers = shared_key("GET", path, span)
        wanted.append(
            load.prepared(
                back_end,
                "GET",
                path,
                headers=headers,
                status=206,
                length=step.size,
                signed=store == "versitygw",
            )
        )
    outcome = load.run(back_end, wanted, count, step.connections)
    return {
        "name": f"{step.name}_direct",
        "wall_s": outcome.wall_s,
        "requests": count,
        "bytes": outcome.bytes,
        "p50_s": outcome.percentile_s(0.5),
        "p99_s": outcome.percentile_s(0.99),
    }
