"""What a gateway holds: heaps of its threads, each of which keeps the most that it ever held; what
waits for clients that do not take it; nothing of the names that passed.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from penstock_bench import gateway_campaign, load
from penstock_bench.gateways import Lane, Running
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


def stalled_get(server: Running, key: str) -> socket.socket:
    """A client that asks for an object and takes next to nothing of it."""
    host, port = server.host.split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    client.sendall(load.prepared(server, "GET", f"/{gateway_campaign.BUCKET}/{key}").head)
    return client


def settled_peak(pid: int) -> int:
    """The most memory that was held, once that has not grown for two seconds."""
    deadline, peak, since = time.monotonic() + 30, 0, time.monotonic()
    while time.monotonic() < min(deadline, since + 2):
        now = peak_rss_bytes(pid)
        if now > peak + (256 << 10):
            peak, since = now, time.monotonic()
        time.sleep(0.1)
    return peak


def test_clients_that_take_nothing_hold_little(scratch: Path) -> None:
    """A back end on a link sends pieces of a few KiB; each held a buffer of 256 KiB, 16 of them."""
    clients = 8
    flags = ("--anonymous", "--bandwidth-mbit", "100")
    with Lane("penstock", "azure-fake", scratch / "stalled", fake_flags=flags) as server:
        make_s3_bucket(server.url, gateway_campaign.BUCKET)
        load.run(server, [gateway_campaign.upload(server, "o", 16 << 20)], 2, 1)
        reset_peak_rss(server.pid)
        before = peak_rss_bytes(server.pid)
        with ExitStack() as open_sockets:
            for _ in range(clients):
                open_sockets.enter_context(stalled_get(server, "o"))
            held = settled_peak(server.pid) - before
        assert held < clients * (3 << 19), f"{held >> 10} KiB for {clients} clients"


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


def test_bodies_in_single_bytes_hold_little(scratch: Path) -> None:
    """Each byte that came alone held the buffer that it was read into, until 16 KiB had come."""
    clients, count = 2, 12_000
    with Lane("penstock", "directory", scratch / "single") as server:
        make_s3_bucket(server.url, gateway_campaign.BUCKET)
        load.run(server, [gateway_campaign.upload(server, "warm", 1 << 20)], 2, 1)
        body = memoryview(bytes(16 << 20))
        reset_peak_rss(server.pid)
        before = peak_rss_bytes(server.pid)
        with ExitStack() as open_sockets:
            sockets = []
            for number in range(clients):
                path = f"/{gateway_campaign.BUCKET}/single-{number}"
                host, port = server.host.split(":")
                client = open_sockets.enter_context(socket.create_connection((host, int(port))))
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.sendall(load.prepared(server, "PUT", path, body).head)
                sockets.append(client)
            for number in range(count):
                for client in sockets:
                    client.send(b"x")
                if number % 4 == 0:
                    time.sleep(0.0003)  # so that they do not come together
        grown = peak_rss_bytes(server.pid) - before
        assert grown < clients * (2 << 20), f"{grown >> 10} KiB for {clients} clients"
