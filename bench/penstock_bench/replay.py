"""The workload `replay`: ClickHouse asks a wide table, on stores with and without a gateway.

Decides which ways to a store are compared (a disk of ClickHouse's on the store itself, and the same
through each gateway) and what is recorded. Each way has a store of its own. In a run one ClickHouse
has the table on all of them and asks them in turn, ten queries each, so that what moves the pace of
the machine moves all ways alike. The network lies before the store: gateways are near ClickHouse.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock_bench import machine
from penstock_bench.config import ROOT
from penstock_bench.gateway_report import table
from penstock_bench.gateways import GatewayError, Lane, Running
from penstock_bench.network import PROFILES, Network, Profile
from penstock_bench.sql import AZURITE_ACCOUNT, AZURITE_KEY
from penstock_bench.stores import within

NAME = "replay"
BUCKET = "replay"
QUERIES = 200
ROWS, QUICK_ROWS = 400_000, 40_000
TIMEOUT_S = 900
"""Of a run, for each way."""


@dataclass(frozen=True)
class Way:
    """How ClickHouse reaches a store."""

    gateway: str
    """As in `gateways.GATEWAYS`; ``native`` is ClickHouse's own Azure disk, ``cached`` is Penstock
    with a cache in memory."""
    back_end: str


WAYS = (
    Way("direct", "s3-fake"),
    Way("relay", "s3-fake"),
    Way("penstock", "s3-fake"),
    Way("cached", "s3-fake"),
    Way("s3proxy", "s3-fake"),
    Way("penstock", "azure-fake"),
    Way("cached", "azure-fake"),
    Way("s3proxy", "azure-fake"),
    Way("native", "azure-fake"),
)

BASE = Way("direct", "s3-fake")
"""What the others are compared with."""

CACHE = """cache_memory_bytes = "1GiB"
cache_validation = "never"
memory_limit_bytes = "2GiB"
"""
"""The cache of ``cached``: ClickHouse's S3 disk never writes an object's name again."""


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
            # Who is loaded first has not always the same one behind.
            shift = run % len(self._ways)
            ways = (*self._ways[shift:], *self._ways[:shift])
            self._progress(f"{len(ways)} ways · run {run + 1} of {self._runs}")
            for way, told in zip(ways, self._replay(ways), strict=True):
                self._record(way, run, told)
        return self.records

    def _record(self, way: Way, run: int, told: dict[str, Any]) -> None:
        record: dict[str, Any] = {
            **self._common,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
            "store": way.back_end,
            "peer": way.gateway,
            "run": run,
            "in_turn": True,
            **told,
        }
        self.records.append(record)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")

    def _replay(self, ways: Sequence[Way]) -> list[dict[str, Any]]:
        """What is told of each way. Those that do not start are left out of the run."""
        told: dict[Way, dict[str, Any]] = {}
        disks: dict[Way, dict[str, Any]] = {}
        with ExitStack() as stack:
            for way in ways:
                try:
                    disks[way] = self._start(stack, way)
                except (GatewayError, subprocess.SubprocessError) as error:
                    told[way] = {"error": str(error)[:400]}
            told |= zip(disks, self._ask(list(disks.values())), strict=True)
        return [told[way] for way in ways]

    def _start(self, stack: ExitStack, way: Way) -> dict[str, Any]:
        """Starts the servers of a way; the disk, and whose processor time counts."""
        native = way.gateway == "native"
        # ClickHouse's own disk needs no gateway; the lane's is not used then.
        gateway = {"native": "versitygw", "cached": "penstock"}.get(way.gateway, way.gateway)
        lane = Lane(
            gateway,
            way.back_end,
            self._scratch / f"{way.gateway}-{way.back_end}",
            extra=CACHE if way.gateway == "cached" else "",
            fake_flags=self._profile.fake_flags,
            network=self._network,
        )
        server = stack.enter_context(lane)
        if native:
            assert lane.back_end is not None
            return {"disk": azure_disk(lane.back_end), "server": lane.back_end.pid}
        within(self._network, "make_s3_bucket", server.url, BUCKET)
        return {"disk": s3_disk(server), "server": server.pid}

    def _ask(self, disks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not disks:
            return []
        try:
            done = subprocess.run(
                [*self._network.prefix, sys.executable, "-m", "penstock_bench.replay_worker"],
                input=json.dumps({"disks": disks, "rows": self._rows, "queries": QUERIES}),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S * len(disks),
                check=False,
                env={**os.environ, "PYTHONPATH": str(ROOT / "bench")},
            )
        except subprocess.TimeoutExpired as error:
            return [{"error": str(error)[-400:]}] * len(disks)
        if done.returncode:
            tail = done.stderr.strip().splitlines()[-1:] or ["no word"]
            return [{"error": f"ClickHouse ended with {done.returncode}: {tail[0][:300]}"}] * len(
                disks
            )
        answer: list[dict[str, Any]] = json.loads(done.stdout)
        return answer


def text(records: list[dict[str, Any]]) -> str:
    """The table: medians over the runs, and the share of the time that a gateway adds."""
    first = records[0]
    profile = first.get("profile", {"name": "loopback"})["name"]
    head = ["store", "way", "load s", f"{QUERIES} queries s", "least to most", "p50 ms", "p99 ms"]
    rows = [[*head, "server CPU s", "of queries", "against S3"]]
    base = {record["run"]: sum(record["queries_s"]) for record in _good(records, BASE)}
    answers = {record["answers"] for record in records if "answers" in record}
    for way in dict.fromkeys(Way(record["peer"], record["store"]) for record in records):
        good = _good(records, way)
        if not good:
            rows.append([way.back_end, way.gateway, *["failed"] * 8])
            continue
        every = sorted(second for record in good for second in record["queries_s"])
        totals = [sum(record["queries_s"]) for record in good]
        cpu = statistics.median(record["server_cpu_s"] for record in good)
        # Rows of 26 November and before have none.
        of_queries = [it["queries_cpu_s"] for it in good if "queries_cpu_s" in it]
        rows.append(
            [
                way.back_end,
                way.gateway,
                f"{statistics.median(record['load_s'] for record in good):.2f}",
                f"{statistics.median(totals):.2f}",
                f"{min(totals):.2f} to {max(totals):.2f}",
                f"{every[len(every) // 2] * 1e3:.1f}",
                f"{every[int(len(every) * 0.99)] * 1e3:.1f}",
                f"{cpu:.2f}",
                f"{statistics.median(of_queries):.2f}" if of_queries else "-",
                _added(good, base),
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


def _added(good: list[dict[str, Any]], base: dict[int, float]) -> str:
    """What is added to the time of S3 itself: the median, and the least and most of several runs.

    Each is compared with its own run, or with all where the ways of a run came one by one.
    """
    if not base:
        return "-"
    if not all(record.get("in_turn") and record["run"] in base for record in good):
        total = statistics.median(sum(record["queries_s"]) for record in good)
        return f"{(total / statistics.median(base.values()) - 1) * 100:+.1f} %"
    shares = sorted((sum(it["queries_s"]) / base[it["run"]] - 1) * 100 for it in good)
    middle = f"{statistics.median(shares):+.1f} %"
    return middle if len(shares) == 1 else f"{middle} ({shares[0]:+.1f} to {shares[-1]:+.1f})"
