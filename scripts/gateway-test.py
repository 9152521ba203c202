"""All tests of the gateway with clients that are not ours, on both cores.

usage: PYTHONPATH=duckdb/test gateway-test.py [--lanes N]

Decides what runs beside what: ClickHouse takes as long as all others together. The others are few
processes, since each starts servers of its own. One file is run by itself as ever, with
`PYTHONPATH=bench:duckdb/test:crates/gateway/pytests build/venv/bin/python -m pytest FILE`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lanes import Job, Result, run_stage

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "crates/gateway/pytests"
LONG = {"test_clickhouse.py": 300, "test_spark.py": 140, "test_soak.py": 110}
"""Seconds of the files that take long, about: each is a process, and they begin first."""


def jobs() -> list[Job]:
    """The long files, and one of all others."""
    files = sorted(TESTS.glob("test_*.py"))
    alone = [it for it in files if it.name in LONG]
    if len(alone) != len(LONG):
        raise SystemExit(f"of {', '.join(LONG)} some are not in {TESTS}: mend LONG")
    others = [it for it in files if it.name not in LONG]
    return [*(job(it.name, [it]) for it in alone), job("all others", others)]


def job(name: str, files: list[Path]) -> Job:
    """A process of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
    path = {"PYTHONPATH": f"{ROOT}/bench:{ROOT}/duckdb/test:{TESTS}"}
    return Job(name, tuple(command), LONG.get(name, 60), environment=path)


def again(result: Result) -> list[str]:
    """How to run it again."""
    path = result.job.environment["PYTHONPATH"]
    return [f"PYTHONPATH={path} {' '.join(result.job.command)}"]


def main() -> int:
    """Runs them; 1 if one failed."""
    parser = argparse.ArgumentParser(description="All tests of the gateway with real clients.")
    parser.add_argument("--lanes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    return run_stage("gateway", options.lanes, jobs(), again)


if __name__ == "__main__":
    sys.exit(main())
