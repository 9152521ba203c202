"""A process whose memory is bounded as a container's is, the page cache that it fills included.

A memory cgroup of its own, by either version of the kernel's interface. Decides nothing but where
the group is made and how a program is started in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1_LIMIT = "memory.limit_in_bytes"
ENTER = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"')


def _parent() -> tuple[Path, str]:
    """Where a group can be made, and the name of its limit."""
    v1 = ROOT / "memory"
    return (v1, V1_LIMIT) if (v1 / V1_LIMIT).exists() else (ROOT, "memory.max")


def why_not() -> str:
    """Why no process can be contained here; empty if it can."""
    parent, limit = _parent()
    controllers = parent / "cgroup.subtree_control"
    is_v1 = limit == V1_LIMIT
    if not is_v1 and not (controllers.exists() and "memory" in controllers.read_text().split()):
        return "the kernel offers no memory cgroups here"
    return "" if os.access(parent, os.W_OK) else f"no cgroup can be made in {parent} (root can)"


@contextmanager
def contained(limit_bytes: int) -> Iterator[list[str]]:
    """The words before a command that start it with this much memory."""
    parent, limit = _parent()
    group = parent / f"penstock-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(limit_bytes))
        yield [*ENTER, str(group)]
    finally:
        group.rmdir()
