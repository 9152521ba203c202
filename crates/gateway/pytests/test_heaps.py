"""What a gateway holds: heaps of its threads, each of which keeps the most that it ever held; nothing
of the names that passed.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock_bench import gateway_campaign, load
from penstock_bench.gateways import Lane
from penstock_bench.processes import peak_rss_bytes, reset_peak_rss
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


def test_names_that_passed_are_not_kept(scratch: Path) -> None:
    """Without a cache nothing is answered from what is remembered of objects."""
    count = 6000
    with Lane("penstock", "azure-fake", scratch / "names", fake_flags=("--anonymous",)) as server:
        make_s3_bucket(server.url, gateway_campaign.BUCKET)

        def puts(name: str, names: int) -> list[load.Prepared]:
            return [gateway_campaign.upload(server, f"{name}-{n}", 1) for n in range(names)]

        load.run(server, puts("same", 16), count, 16)
        reset_peak_rss(server.pid)
        before = peak_rss_bytes(server.pid)
        load.run(server, puts("other", count), count, 16)
        grown = peak_rss_bytes(server.pid) - before
        assert grown < count * 256, f"{grown >> 10} KiB for {count} names"
