"""The traffic that the profile of the release build is made from (`scripts/profile.sh`).

Runs a gateway that counts what it executes before each back end: the mixed traffic of the soak,
loads of the gateway's workload, and ClickHouse's reads. Decides how much of each; what the counts
are for is the compiler's affair.

    LLVM_PROFILE_FILE=... PYTHONPATH=bench build/venv/bin/python -m penstock_bench.training PENSTOCK
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock_bench import gateway_campaign, load, replay, soak
from penstock_bench.config import BUILD
from penstock_bench.gateways import Lane
from penstock_bench.stores import make_s3_bucket

STORES = ("directory", "azure-fake", "s3-fake")
DURATION_S, RATE_PER_S = 15, 40
"""Of the mixed traffic."""
LOADS = (
    ("get_64k", 2000),
    ("put_64k", 1000),
    ("get_1m", 300),
    ("put_1m", 100),
    ("get_16m", 30),
    ("put_16m", 10),
)
REPLAYED = ("s3-fake", "azure-fake")
ROWS = 200_000


def mixed(store: str, build: Path, scratch: Path) -> None:
    """A little of everything."""
    record = soak.soak(
        Lane("penstock", store, scratch, build=build), "plain", DURATION_S, RATE_PER_S, say
    )
    say(f"{store}: {sum(record['done'].values())} requests of all kinds")


def loads(store: str, build: Path, scratch: Path) -> None:
    """Much of what gateways are measured by."""
    with Lane("penstock", store, scratch, build=build) as server:
        make_s3_bucket(server.url, gateway_campaign.BUCKET)
        for name, count in LOADS:
            step = next(step for step in gateway_campaign.STEPS if step.name == name)
            load.run(server, [gateway_campaign.upload(server, f"read-{name}", step.size)], 1, 1)
            load.run(server, gateway_campaign.requests(server, step), count, step.connections)


def queries(store: str, build: Path, scratch: Path) -> None:
    """What ClickHouse asks.

    Raises:
        subprocess.CalledProcessError: it failed, or a query did.
    """
    with Lane("penstock", store, scratch, build=build) as server:
        make_s3_bucket(server.url, replay.BUCKET)
        disk = {"disk": replay.s3_disk(server), "server": server.pid}
        job = {"disks": [disk], "rows": ROWS, "queries": replay.QUERIES}
        command = [sys.executable, "-m", "penstock_bench.replay_worker"]
        told = subprocess.run(
            command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True
        )
        if "error" in json.loads(told.stdout)[0]:
            raise subprocess.CalledProcessError(1, command, told.stdout)


def say(line: str) -> None:
    """Tells how far it is."""
    print(line, file=sys.stderr)


def main() -> None:
    """Trains the binary that is named."""
    with tempfile.TemporaryDirectory(prefix="penstock-training-") as directory:
        scratch = Path(directory)
        build = scratch / "build"
        build.mkdir()
        (build / "penstock").symlink_to(Path(sys.argv[1]).resolve())
        # As it was built to be used: what a fake executes is nobody's time.
        (build / "penstock-fake").symlink_to(BUILD / "penstock-fake")
        for store in STORES:
            mixed(store, build, scratch / f"mixed-{store}")
            loads(store, build, scratch / f"loads-{store}")
        for store in REPLAYED:
            queries(store, build, scratch / f"queries-{store}")
            say(f"{store}: {replay.QUERIES} queries")


if __name__ == "__main__":
    main()
