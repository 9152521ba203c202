"""The workload `replay`: ClickHouse asks a wide table, on stores with and without a gateway.

Decides which ways to a store are compared (a disk of ClickHouse's on the store itself, and the same
through each gateway) and what is recorded. Ways alternate; each run has a store of its own. The
network lies before the store: gateways are near ClickHouse.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock_bench import machine
from penstock_bench.config import ROOT
from penstock_bench.gateway_report import table
from penstock_bench.gateways import GatewayError, Lane, Running
from penstock_bench.network import PROFILES, Network, Profile
from penstock_bench.processes import cpu_s
from penstock_bench.sql import AZURITE_ACCOUNT, AZURITE_KEY
from penstock_bench.stores import within

NAME = "replay"
BUCKET = "replay"
QUERIES = 200
ROWS, QUICK_ROWS = 400_000, 40_000
TIMEOUT_S = 900


@dataclass(frozen=True)
class Way:
    """How ClickHouse reaches a store."""

    gateway: str
    """As in `gateways.GATEWAYS`; ``native`` is ClickHouse's own Azure disk."""
    back_end: str


WAYS = (
    Way("direct", "s3-fake"),
    Way("relay", "s3-fake"),
    Way("penstock", "s3-fake"),
    Way("s3proxy", "s3-fake"),
    Way("penstock", "azure-fake"),
    Way("s3proxy", "azure-fake"),
    Way("native", "azure-fake"),
)


def chosen(stores: Sequence[str], gateways: Sequence[str]) -> list[Way]:
    """The ways over these stores and through these gateways, each all when none is named.

    Raises:
        GatewayError: there is no such way.
    """
    ways = [
        way
        for way in WAYS
        if (not stores or way.back_end in stores) and (not gateways or way.gateway in gateways)
    ]
    if not ways:
        every = ", ".join(f"{way.gateway} on {way.back_end}" for way in WAYS)
        raise GatewayError(f"no such way; there are: {every}")
    return ways


def s3_disk(server: Running) -> str:
    """ClickHouse's S3 disk."""
    return (
        f"disk = disk(type = s3, endpoint = '{server.url}/{BUCKET}/t/', region = 'us-east-1',"
        f" access_key_id = '{server.access_key}', secret_access_key = '{server.secret_key}')"
    )


def azure_disk(back_end: Running) -> str:
    """ClickHouse's own Azure disk."""
    return (
        "disk = disk(type = azure_blob_storage, container_name = 'replay',"
        f" storage_account_url = '{back_end.url}/{AZURITE_ACCOUNT}',"
        f" account_name = '{AZURITE_ACCOUNT}', account_key = '{AZURITE_KEY}')"
    )


class Campaign:
    """One execution of the workload."""

    def __init__(
        self,
        ways: Sequence[Way],
        runs: int,
        rows: int,
        out: Path,
        progress: Callable[[str], None],
        profile: Profile = PROFILES["loopback"],
        network: Network | None = None,
    ) -> None:
        self._ways, self._runs, self._rows, self._progress = ways, runs, rows, progress
        self._profile, self._network = profile, network or Network()
        self._name = f"{NAME}-{profile.name}-{time.strftime('%Y%m%dT%H%M%S')}"
        self.path, self._scratch = out / f"{self._name}.jsonl", out / self._name
        self._common = {
            "schema": 1,
            "campaign": self._name,
            "workload": NAME,
            "rows": rows,
            "profile": asdict(profile),
            "machine": machine.machine(),
            **machine.commit(),
        }
        self.records: list[dict[str, Any]] = []

    def run(self) -> list[dict[str, Any]]:
        """All of it; gives the records that were also written."""
        for run in range(self._runs):
            shift = run % len(self._ways)
            for way in (*self._ways[shift:], *self._ways[:shift]):
                what = f"{way.back_end} · {way.gateway} · run {run + 1} of {self._runs}"
                self._progress(what)
                self._record(way, run)
        return self.records

    def _record(self, way: Way, run: int) -> None:
        record: dict[str, Any] = {
            **self._common,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
            "store": way.back_end,
            "peer": way.gateway,
            "run": run,
        }
        try:
            record |= self._replay(way)
        except (GatewayError, subprocess.SubprocessError) as error:
            record["error"] = str(error)[:400]
        self.records.append(record)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")

    def _replay(self, way: Way) -> dict[str, Any]:
        native = way.gateway == "native"
        # ClickHouse's own disk needs no gateway; the lane's is not used then.
        lane = Lane(
            "versitygw" if native else way.gateway,
            way.back_end,
            self._scratch,
            fake_flags=self._profile.fake_flags,
            network=self._network,
        )
        with lane as server:
            if native:
                assert lane.back_end is not None
                return self._ask(azure_disk(lane.back_end), lane.back_end)
            within(self._network, "make_s3_bucket", server.url, BUCKET)
            return self._ask(s3_disk(server), server)

    def _ask(self, disk: str, server: Running) -> dict[str, Any]:
        cpu = cpu_s(server.pid)
        done = subprocess.run(
            [*self._network.prefix, sys.executable, "-m", "penstock_bench.replay_worker"],
            input=json.dumps(
                {"disk": disk, "rows": self._rows, "queries": QUERIES, "server": server.pid}
            ),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "bench")},
        )
        if done.returncode:
            tail = done.stderr.strip().splitlines()[-1:] or ["no word"]
            return {"error": f"ClickHouse ended with {done.returncode}: {tail[0][:300]}"}
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer | {"server_cpu_s": cpu_s(server.pid) - cpu}


def text(records: list[dict[str, Any]]) -> str:
    """The table: medians over the runs, and the share of the time that a gateway adds."""
    first = records[0]
    profile = first.get("profile", {"name": "loopback"})["name"]
    head = ["store", "way", "load s", f"{QUERIES} queries s", "least to most", "p50 ms", "p99 ms"]
    rows = [[*head, "server CPU s", "of queries", "against S3"]]
    base = _total(records, Way("direct", "s3-fake"))
    answers = {record["answers"] for record in records if "answers" in record}
    for way in dict.fromkeys(Way(record["peer"], record["store"]) for record in records):
        good = _good(records, way)
        if not good:
            rows.append([way.back_end, way.gateway, *["failed"] * 8])
            continue
        every = sorted(second for record in good for second in record["queries_s"])
        total = _total(records, way)
        totals = [sum(record["queries_s"]) for record in good]
        cpu = statistics.median(record["server_cpu_s"] for record in good)
        # Rows of 26 November and before have none.
        of_queries = [it["queries_cpu_s"] for it in good if "queries_cpu_s" in it]
        rows.append(
            [
                way.back_end,
                way.gateway,
                f"{statistics.median(record['load_s'] for record in good):.2f}",
                f"{total:.2f}",
                f"{min(totals):.2f} to {max(totals):.2f}",
                f"{every[len(every) // 2] * 1e3:.1f}",
                f"{every[int(len(every) * 0.99)] * 1e3:.1f}",
                f"{cpu:.2f}",
                f"{statistics.median(of_queries):.2f}" if of_queries else "-",
                f"{(total / base - 1) * 100:+.1f} %" if base else "-",
            ]
        )
    told = [
        f"failed: {record['store']} {record['peer']}: {record['error']}"
        for record in records
        if "error" in record
    ]
    same = "the answers are the same on all" if len(answers) == 1 else "THE ANSWERS DIFFER"
    title = f"ClickHouse, {first['rows']} rows, network {profile}"
    return "\n".join([title, table(rows), same, *told])


def _good(records: list[dict[str, Any]], way: Way) -> list[dict[str, Any]]:
    return [
        record
        for record in records
        if (record["peer"], record["store"]) == (way.gateway, way.back_end)
        and "queries_s" in record
    ]


def _total(records: list[dict[str, Any]], way: Way) -> float:
    totals = [sum(record["queries_s"]) for record in _good(records, way)]
    return statistics.median(totals) if totals else 0.0
