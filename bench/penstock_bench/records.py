"""What the workloads on devices write: one line for each run, as it ends.

Decides the head that every record has: which campaign, of which commit, on which machine, when,
and how loaded that was.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from penstock_bench import machine

SCHEMA = 1


class Records:
    """The records of one execution of a workload; `path` is their file."""

    def __init__(self, workload: str, out: Path) -> None:
        self.campaign = f"{workload}-{time.strftime('%Y%m%dT%H%M%S')}"
        self.path = out / f"{self.campaign}.jsonl"
        self.all: list[dict[str, Any]] = []
        self._common = {
            "schema": SCHEMA,
            "campaign": self.campaign,
            "workload": workload,
            "machine": machine.machine(),
            **machine.commit(),
        }

    def add(self, began: dict[str, Any], run: dict[str, Any]) -> None:
        """Adds a run: when it began (`begin`), and what is told of it."""
        record = {**self._common, **began, **run}
        self.all.append(record)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")


def begin() -> dict[str, Any]:
    """The moment at which a run begins, and the one-minute load average then."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": os.getloadavg()[0],
    }
