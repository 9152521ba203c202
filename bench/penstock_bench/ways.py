"""Ways to a device that the workloads `nvme` and `nvme_raw` compare.

Decides which there are on a kind of device, and by which of its names each is opened: the paper's
five anywhere, NVMe commands on NVMe namespaces only, libxnvme where it is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock_bench.devices import NVME, generic

XNVME_VARIABLE, XNVME_NAME = "XNVME_LIBRARY_PATH", "libxnvme.so.0"
BLOCK_IOS, COMMAND_IOS = ("file", "direct", "uring"), ("ioctl", "passthrough")
QUEUES = ("sync", "single", "pool", "thread")
SLEEP, POLL = "sleep", "poll"


@dataclass(frozen=True)
class Way:
    """How bytes move, how threads share queues, and how they wait where there is a choice."""

    io: str
    queues: str
    wait: str = SLEEP

    def __str__(self) -> str:
        """As records name it."""
        return "/".join((self.io, self.queues, *self._wait))

    @property
    def _wait(self) -> tuple[str, ...]:
        return () if self.wait == SLEEP else (self.wait,)

    def node(self, device: Path) -> Path:
        """Which name of a device it wants: NVMe commands go to the character device."""
        return generic(device) if self.io in COMMAND_IOS else device

    def url(self, device: Path, what: str) -> str:
        """A database on a device, or room to spill."""
        waits = "".join(f"&wait={wait}" for wait in self._wait)
        return f"nvme://{self.node(device)}?{what}&io={self.io}&queues={self.queues}{waits}"


def parsed(text: str) -> Way:
    """What `str` of a way gives."""
    return Way(*text.split("/"))


PAPER = {
    "file": Way("file", "thread"),
    "sync": Way("direct", "sync"),
    "single": Way("uring", "single"),
    "pool": Way("uring", "pool"),
    "thread": Way("uring", "thread"),
}
"""The paper's five by their names there, without passthrough."""
PASSTHROUGH = {
    "sync+pt": Way("ioctl", "sync"),
    **{f"{queues}+pt": Way("passthrough", queues) for queues in ("single", "pool", "thread")},
}
"""The same with NVMe commands of our own; a file has no such way."""
XNVME, XNVME_PEER = Way("xnvme:io_uring", "thread"), "xnvme"


def of_paper(kind: str) -> dict[str, Way]:
    """The paper's variants on a kind of device, and libxnvme where it is installed."""
    found = {**PAPER, **(PASSTHROUGH if kind == NVME else {})}
    return found if why_no_xnvme() else {**found, XNVME_PEER: XNVME}


def every(kind: str) -> tuple[Way, ...]:
    """Every io by every discipline."""
    ios = BLOCK_IOS + (COMMAND_IOS if kind == NVME else ())
    return tuple(Way(io, queues) for io in ios for queues in QUEUES)


def why_no_xnvme() -> str:
    """Why nothing can be measured through libxnvme here; empty if it can."""
    name = os.environ.get(XNVME_VARIABLE, XNVME_NAME)
    # In another process: a library can end the one that loads it.
    command = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", name]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False)
    if loaded.returncode == 0:
        return ""
    cause = (loaded.stderr.strip().splitlines() or [f"loading {name} ended the process"])[-1]
    return f"libxnvme is not installed, nor named by {XNVME_VARIABLE} ({cause})"
