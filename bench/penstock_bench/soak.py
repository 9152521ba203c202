"""The workload `soak`: mixed traffic through the gateway for long, while its back end misbehaves.

Decides how the back end misbehaves, with which caches the gateway runs, and what of its process may
not grow. Each worker has keys of its own, so what they may hold is known (`soak_worker`,
`soak_model`).
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_bench import machine
from penstock_bench.config import ConfigError
from penstock_bench.gateways import Lane, Running
from penstock_bench.soak_model import MIB, growth, sample
from penstock_bench.soak_worker import BUCKET, UNHEARD, WEIGHTS, Onlooker, Worker, client

NAME = "soak"
DURATION_S = 1800
WORKERS = 6
OPERATIONS_PER_S = 60
"""Of all workers together; so that the machine stays usable."""
STORES = ("azure-fake", "directory")
FAULTS = (
    "status=503,p=0.01",
    "reset,p=0.005",
    "reset-upload=30000,p=0.01",
    "lost-answer,p=0.005",
    "cut=20000,method=GET,p=0.01",
    "stall=300,p=0.005",
    "latency=50,p=0.05",
    "slow=2000000,p=0.01",
    "html,p=0.005",
    "error-200,p=0.005",
    "wrong-range=+1,p=0.005",
    "ignore-range,p=0.005",
    "truncate=300,op=ListBlobs,p=0.05",
)
"""Of a back end that can be told; each for its share of the requests."""


@dataclass(frozen=True)
class Mode:
    """With which caches the gateway runs."""

    validation: str
    stale_s: float = 0.0
    """For so long it may serve what others replaced (metadata_validity_ms)."""


MODES: dict[str, Mode | None] = {
    "plain": None,
    "time": Mode("time", stale_s=20.0),
    "always": Mode("always"),
}
"""By `cache_validation`; a plain gateway has no cache."""
CACHE_DISK_BYTES, CACHE_MEMORY_BYTES = 64 * MIB, 16 * MIB
"""Less than the objects take, so that blocks give way."""
ONLOOKERS = 2
"""Where there is a cache: they fill it with what is replaced at that moment."""
UNHEARD_WORKERS = 2
"""Where there is a cache, so many vanish while they put: of their keys little is remembered."""


def settings(mode: Mode, cache: Path) -> str:
    """The lines of the config file."""
    return (
        f'admin_listen = "127.0.0.1:0"\ncache_dir = "{cache}"\n'
        f'cache_disk_bytes = "{CACHE_DISK_BYTES}"\ncache_memory_bytes = "{CACHE_MEMORY_BYTES}"\n'
        f'cache_validation = "{mode.validation}"\n'
        f"metadata_validity_ms = {mode.stale_s * 1000:.0f}\n"
        'read_ahead_max_bytes = "4MiB"\n'
    )


def lane_of(store: str, mode: str, directory: Path) -> Lane:
    """The gateway of a mode, before a store."""
    cached = MODES[mode]
    if cached is None:
        return Lane("penstock", store, directory)
    if store == "directory":
        raise ConfigError("a directory is not cached; take MODE=plain, or another STORE")
    return Lane("penstock", store, directory, extra=settings(cached, directory / "cache"))


def lanes_of(stores: Sequence[str], modes: Sequence[str]) -> list[tuple[str, str]]:
    """Stores with the modes that they are run in: where none is named, all that fit."""
    return [
        (store, mode)
        for store in stores
        for mode in modes or MODES
        if modes or MODES[mode] is None or store != "directory"
    ]


def disk_bytes(directory: Path) -> int:
    """What the files of a cache take; they come and go meanwhile."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).lstat().st_size
    return total


def cache_reads(page: str) -> dict[str, int]:
    """Bytes that were read from each cache, by the page of metrics."""
    found = re.findall(r'^penstock_cache_read_bytes_total\{cache="(\w+)"\} (\d+)', page, re.M)
    return {name: int(count) for name, count in found}


def fetched(url: str) -> str:
    """A page of the gateway's."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - http
        return str(answer.read().decode())


def set_faults(back_end: Running, faults: Sequence[str]) -> None:
    """Tells a fake what goes wrong from now on."""
    url = f"{back_end.url}/_penstock/faults"
    for method in ("DELETE", "POST") if faults else ("DELETE",):
        body = "\n".join(faults).encode() if method == "POST" else None
        asked = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - http
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - http
            answer.read()


def soak(
    lane: Lane, mode: str, duration_s: float, rate: float, progress: Callable[[str], None]
) -> dict[str, Any]:
    """One gateway under traffic for so long; gives the record, whose ``violations`` are empty.

    Args:
        lane: as `lane_of` the mode gives it.
        mode: one of `MODES`.
        duration_s: for how long.
        rate: requests a second, of those who write in every mode.
        progress: is told now and then.
    """
    cached = MODES[mode]
    with lane as server:
        client(server).create_bucket(Bucket=BUCKET)
        replica = lane.replica() if cached else None
        if lane.back_end is not None:
            set_faults(lane.back_end, FAULTS)
        begin = time.monotonic()
        deadline = begin + duration_s
        workers, onlookers = _crew(server, replica, cached, deadline, WORKERS / rate)
        crew: list[Worker | Onlooker] = [*workers, *onlookers]
        for one in crew:
            one.thread.start()
        samples, every_s, disk_most = [], max(0.25, duration_s / 400), 0
        while time.monotonic() < deadline:
            time.sleep(every_s)
            samples.append(sample(server.pid))
            disk_most = max(disk_most, disk_bytes(server.directory / "cache"))
            if len(samples) % 20 == 0:
                count = sum(one.done.total() for one in crew)
                progress(f"{count} requests, {samples[-1].rss_bytes / 1e6:.0f} MB")
        for one in crew:
            one.thread.join(120)
        violations = [f"{one.thread.name} hangs" for one in crew if one.thread.is_alive()]
        if lane.back_end is not None:
            set_faults(lane.back_end, ())
        for worker in workers:
            worker.check_all()
        if replica:
            # What the caches told is what the store has.
            for worker in workers:
                worker.check_by(replica)
        for one in crew:
            violations += one.violations
        record = {
            "mode": mode,
            "duration_s": time.monotonic() - begin,
            "done": _sorted(one.done for one in crew),
            "failed": _sorted(one.failed for one in crew),
            "failures": _sorted(one.told for one in crew),
            "slowest_s": _slowest(one.slowest_s for one in crew),
            "bytes": sum(one.bytes for one in crew),
            "rss_bytes": [one.rss_bytes for one in samples[:: max(1, len(samples) // 40)]],
            "fds": [one.fds for one in samples[:: max(1, len(samples) // 40)]],
            "rss_most_bytes": max(one.rss_bytes for one in samples),
            "fds_most": max(one.fds for one in samples),
        }
        violations += growth(samples)
        if cached and server.metrics:
            record |= {"cache_disk_most_bytes": disk_most}
            record |= {"cache_read_bytes": cache_reads(fetched(server.metrics))}
            violations += _of_caches(record)
        return record | {"violations": violations}


def _crew(
    server: Running,
    replica: Running | None,
    cached: Mode | None,
    deadline: float,
    pause_s: float,
) -> tuple[list[Worker], list[Onlooker]]:
    """Who writes, and who looks on."""
    quiet = {name: weight for name, weight in WEIGHTS.items() if name != UNHEARD}
    workers = [
        Worker(
            server,
            number,
            deadline,
            pause_s,
            quiet if cached and number >= UNHEARD_WORKERS else WEIGHTS,
        )
        for number in range(WORKERS)
    ]
    if cached is None or replica is None:
        return workers, []
    onlookers = [Onlooker(server, n, deadline, pause_s, workers) for n in range(ONLOOKERS)]
    # One whose writes the gateway hears nothing of.
    elsewhere = Worker(server, WORKERS, deadline, pause_s, quiet, replica, cached.stale_s)
    return [*workers, elsewhere], onlookers


def _sorted(counts: Iterable[Counter[str]]) -> dict[str, int]:
    return dict(sorted(sum(counts, Counter()).items()))


def _slowest(of_each: Iterable[dict[str, float]]) -> dict[str, float]:
    """The longest that each operation took, tries and all."""
    found: dict[str, float] = {}
    for name, seconds in (pair for one in of_each for pair in one.items()):
        found[name] = max(found.get(name, 0.0), round(seconds, 2))
    return dict(sorted(found.items()))


def _of_caches(record: dict[str, Any]) -> list[str]:
    """What is wrong with the caches of a run."""
    wrong = []
    for name, count in record["cache_read_bytes"].items():
        if not count:
            wrong.append(f"nothing was read from the cache: {name}")
    if record["cache_disk_most_bytes"] > CACHE_DISK_BYTES:
        most = record["cache_disk_most_bytes"]
        wrong.append(f"the cache took {most} bytes of the disk, of {CACHE_DISK_BYTES}")
    return wrong


def run(
    stores: Sequence[str],
    modes: Sequence[str],
    duration_s: float,
    rate: float,
    out: Path,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """The workload; gives the records that were also written."""
    name = f"{NAME}-{time.strftime('%Y%m%dT%H%M%S')}"
    records = []
    for store, mode in lanes_of(stores, modes):
        record = {
            "schema": 1,
            "campaign": name,
            "workload": NAME,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
            "store": store,
            "peer": "penstock",
            "machine": machine.machine(),
            **machine.commit(),
        }
        lane = lane_of(store, mode, out / name)
        progress(f"{store}, {mode}")
        record |= soak(lane, mode, duration_s, rate, progress)
        records.append(record)
        with (out / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    return records


def text(records: list[dict[str, Any]]) -> str:
    """What became of it."""
    lines = []
    for record in records:
        done, failed = (sum(record[which].values()) for which in ("done", "failed"))
        rss, fds, seconds = record["rss_bytes"], record["fds"], record["duration_s"]
        # Older records have one sample of ten only.
        rss_most = record.get("rss_most_bytes", max(rss))
        fds_most = record.get("fds_most", max(fds))
        # Older records have no modes.
        mode = record.get("mode", "plain")
        lane = record["store"] if mode == "plain" else f"{record['store']}, cache by {mode}"
        lines += [
            f"{lane}: {seconds:.0f} s, {done} requests done, {failed} failed"
            f" by the back end's faults, {record['bytes'] / 1e9:.1f} GB",
            f"  memory {rss[0] / 1e6:.0f} to {rss[-1] / 1e6:.0f} MB,"
            f" at most {rss_most / 1e6:.0f}; descriptors {fds[0]} to {fds[-1]},"
            f" at most {fds_most}",
            *_caches_text(record),
            *(f"  VIOLATION {line}" for line in record["violations"][:20]),
        ]
        if not record["violations"]:
            lines.append("  no object lost or torn, nothing grew")
    return "\n".join(lines)


def _caches_text(record: dict[str, Any]) -> list[str]:
    reads = record.get("cache_read_bytes", {})
    told = ", ".join(f"{count / 1e9:.1f} GB {name}" for name, count in reads.items())
    most = record.get("cache_disk_most_bytes", 0) / 1e6
    return [f"  read from caches: {told}; on disk at most {most:.0f} MB"] if reads else []
