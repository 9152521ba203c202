"""A process whose memory is bounded as a container's is, the page cache that it fills included.

A memory cgroup of its own, by either version of the kernel's interface. Decides nothing but where
the group is made and how a program is started in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
ENTER = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"')


def why_not() -> str:
    """Why no process can be contained here; empty if it can."""
    if os.geteuid() != 0:
        return "a memory cgroup takes root"
    controllers = V2 / "cgroup.subtree_control"
    is_v1 = (V1 / "memory.limit_in_bytes").exists()
    if not is_v1 and not (controllers.exists() and "memory" in controllers.read_text().split()):
        return "the kernel offers no memory cgroups here"
    return "" if os.access(V1 if is_v1 else V2, os.W_OK) else "/sys/fs/cgroup is read-only"


@contextmanager
def contained(limit_bytes: int) -> Iterator[list[str]]:
    """The words before a command that start it with this much memory."""
    is_v1 = (V1 / "memory.limit_in_bytes").exists()
    group = (V1 if is_v1 else V2) / f"penstock-bench-{os.getpid()}"
    group.mkdir()
    try:
        limit = group / ("memory.limit_in_bytes" if is_v1 else "memory.max")
        limit.write_text(str(limit_bytes))
        yield [*ENTER, str(group)]
    finally:
        group.rmdir()
