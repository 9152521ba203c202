"""How many heaps a gateway's threads have: each keeps the most that it ever held."""

from __future__ import annotations

import os
from pathlib import Path

from penstock_bench import gateway_campaign, load
from penstock_bench.gateways import Lane
from penstock_bench.stores import make_s3_bucket

HEAP_BYTES = 64 << 20
"""So much address space glibc takes for a heap of threads, at a multiple of it."""


def heaps(pid: int) -> int:
    """Heaps besides the process's first."""
    ranges = [
        line.split()[0].split("-") for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
    ]
    spans = {int(begin, 16): int(end, 16) for begin, end in ranges}
    return sum(
        begin % HEAP_BYTES == 0 and spans.get(end) == begin + HEAP_BYTES
        for begin, end in spans.items()
    )


def test_threads_share_heaps(scratch: Path) -> None:
    with Lane("penstock", "directory", scratch / "heaps") as server:
        make_s3_bucket(server.url, gateway_campaign.BUCKET)
        step = next(step for step in gateway_campaign.STEPS if step.name == "uploads")
        load.run(server, gateway_campaign.requests(server, step), 64, step.connections)
        threads = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
        processors = len(os.sched_getaffinity(server.pid))
        most = -(-processors // 4)
        assert threads > most, "the count tells something only of more threads than heaps"
        assert heaps(server.pid) < most
