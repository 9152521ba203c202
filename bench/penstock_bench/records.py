"""What the workloads on devices write: one line for each run, as it ends.

Decides the head that every record has: which campaign, of which commit, on which machine, when,
how loaded that was, and how much of its processors the machine's host took away meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
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

    def add(self, began: Moment, run: dict[str, Any]) -> None:
        """Adds a run: when it began, and what is told of it."""
        now = processor_ticks()
        ticks = max(now.all - began.ticks.all, 1)
        head = {
            "time": began.time,
            "load": began.load,
            "stolen": (now.stolen - began.ticks.stolen) / ticks,
        }
        record = {**self._common, **head, **run}
        self.all.append(record)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")


@dataclass(frozen=True)
class Ticks:
    """Processor time of the machine since it started, and what its host took away of it."""

    all: int
    stolen: int


def processor_ticks(text: str | None = None) -> Ticks:
    """What /proc/stat tells, or a text like it."""
    lines = (text or Path("/proc/stat").read_text()).splitlines()
    # user nice system idle iowait irq softirq steal; guests are in user and nice already.
    numbers = [int(word) for word in lines[0].split()[1:9]]
    return Ticks(sum(numbers), numbers[7])


@dataclass(frozen=True)
class Moment:
    """When a run begins, and the one-minute load average then."""

    time: str
    load: float
    ticks: Ticks


def begin() -> Moment:
    """Now."""
    clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Moment(clock, os.getloadavg()[0], processor_ticks())
