"""What a record says of where it was made: machine, commit, the loopback at its best."""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from penstock_bench.config import BUILD, ROOT

PROBE_BYTES = 1 << 29
PROBE_PIECE = 1 << 20
PROBE_TRIPS = 2000


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> dict[str, Any]:
    """The commit, whether the tree differs from it, and what the binaries were built from."""
    built = BUILD / ".commit"
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain")),
        "built_from": built.read_text().strip() if built.is_file() else "",
    }


def machine() -> dict[str, Any]:
    """Processor, cores, memory, kernel."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.+)", text)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": model.group(1) if model else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else 0,
        "kernel": platform.release(),
    }


def _send(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PROBE_TRIPS):
            connection.sendall(connection.recv(64))
        piece = bytes(PROBE_PIECE)
        for _ in range(PROBE_BYTES // PROBE_PIECE):
            connection.sendall(piece)


def loopback() -> dict[str, float]:
    """What a raw socket does on the loopback now: a receiver's rate and CPU, a round trip."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if pid == 0:
            _send(listener)
            os._exit(0)
        with socket.create_connection(listener.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begin = time.perf_counter()
            for _ in range(PROBE_TRIPS):
                client.sendall(b"x")
                client.recv(64)
            trip_s = (time.perf_counter() - begin) / PROBE_TRIPS
            buffer = bytearray(PROBE_PIECE)
            usage = resource.getrusage(resource.RUSAGE_THREAD)
            begin = time.perf_counter()
            received = 0
            while count := client.recv_into(buffer):
                received += count
            wall_s = time.perf_counter() - begin
            after = resource.getrusage(resource.RUSAGE_THREAD)
        os.waitpid(pid, 0)
    cpu_s = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return {
        "loopback_bytes_per_s": received / wall_s,
        "loopback_cpu_s_per_gb": cpu_s / (received / 1e9),
        "loopback_rtt_s": trip_s,
    }
