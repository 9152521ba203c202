"""All tests of the extension, on both cores: each file of pytest's a process, and sqllogic's files.

usage: run_all.py [--lanes N] [FILE...]

FILE is one of pytest's files; without any all of them are run, and sqllogic's.

Decides what runs beside what: a test that measures time, or counts requests whose number hangs on
how fast a link looks, is alone on the machine (`ALONE`); one that waits more than it works takes no
core from the others (`WAITING`); all has its own directory, ports and devices. `LONG` says what
takes so long that it has to begin early. What each took is told, also of the processors. A file is
run by itself as ever: `build/venv/bin/python -m pytest duckdb/test/test_cache.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import duckdb
import lanes
from lanes import Job, Lanes, Result, end_by_interrupt

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSIONS = [
    line.split("\t")
    for line in (ROOT / "scripts/duckdb-versions.tsv").read_text().splitlines()
    if not line.startswith("#")
]
NEWEST_DUCKDB = VERSIONS[0][0]
"""The version on which pytest's files are run, too, but for those of `ONCE`."""
OTHER_DUCKDBS = [
    version
    for version, ready_library in VERSIONS
    if ready_library != "-" and version != duckdb.__version__
]
"""Versions on which sqllogic's files are run, too: those that want no core compiled."""
LONG = {
    "test_nvme_failing.py": 450,
    "test_trouble.py": 60,
    "test_nvme_killed.py": 50,
    "test_failed_overwrite.py": 42,
    "test_differential.py": 40,
    "test_interruption.py": 33,
    "test_settings_midway.py": 17,
    "test_docs.py": 15,
    "test_nvme_spill.py": 15,
    "test_odd_servers.py": 14,
    "test_settings.py": 14,
}
"""Seconds of the files that take long, about: they begin first."""
PIECES = {"test_nvme_failing.py": 13}
"""Files whose tests are spread over so many processes."""
WAITING = frozenset(
    {
        "test_credentials.py",
        "test_failed_overwrite.py",
        "test_interruption.py",
        "test_odd_servers.py",
        "test_opened_together.py",
        "test_settings.py",
        "test_settings_midway.py",
        "test_trouble.py",
        "test_wrap_cancelled.py",
    }
)
"""Files that wait for time limits and slow servers, and work a sixth of their time or less."""
_AHEAD = "counts round trips, or what is fetched ahead in vain"
ALONE: Mapping[str, str] = {
    "test_closed_early.py": _AHEAD,
    "test_early_end.py": _AHEAD,
    "test_file_lists.py": _AHEAD,
    "test_many_chunks.py": "measures seconds, round trips and memory",
    "test_observe.py": "compares what a statement waits for with its work",
    "test_read_ahead.py": _AHEAD,
    "test_scan_columns.py": _AHEAD,
    "test_scan_filters.py": _AHEAD,
}
"""Files that want the machine for themselves, and why."""
_DEVICE = "tests devices, whichever DuckDB writes to them"
_OWN = "tests the tests themselves"
ONCE: Mapping[str, str] = {
    "test_cache_device.py": _DEVICE,
    "test_lanes.py": _OWN,
    "test_nvme_failing.py": _DEVICE,
    "test_nvme_killed.py": _DEVICE,
    "test_nvme_storage.py": "DuckDB's own storage tests, of version 1.5",
    "test_nvme_trouble.py": _DEVICE,
    "test_storage_judge.py": _OWN,
}
"""Files that are run on one DuckDB only, and why."""


PREPARE = f"{ROOT}/scripts/duckdb-test-other.sh"
"""Makes what another DuckDB needs, and runs a command on it."""


def on_newest(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command on that version, for which all is there."""
    return ("env", f"PYTHONPATH={ROOT}/build/duckdb-wheel-{NEWEST_DUCKDB}", *command)


def sqllogic_jobs() -> list[Job]:
    """The files of sqllogictest on the DuckDB of this Python, and on the others."""
    command = (sys.executable, f"{HERE}/sqllogic.py")
    return [
        Job(f"sqllogic on DuckDB {duckdb.__version__}", command),
        Job(f"sqllogic on DuckDB {NEWEST_DUCKDB}", on_newest(command)),
        # These compile the shim first.
        *(
            Job(f"sqllogic on DuckDB {other}", (PREPARE, other), seconds=30)
            for other in OTHER_DUCKDBS
        ),
    ]


def pytest_jobs(files: list[Path], scratch: Path, *, is_newest: bool = False) -> list[Job]:
    """One for each file, or piece of it, with a directory of its own.

    They run on the DuckDB of this Python, or on the newest.
    """
    jobs = []
    on = f" on DuckDB {NEWEST_DUCKDB}" if is_newest else ""
    for file in files:
        pieces = PIECES.get(file.name, 1)
        for number in range(1, pieces + 1):
            name = (file.name if pieces == 1 else f"{file.name} {number}/{pieces}") + on
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{file}"]
            command += ["--basetemp", f"{scratch_of(scratch, name)}"]
            command += ["--piece", f"{number}/{pieces}"] if pieces > 1 else []
            jobs.append(
                Job(
                    name,
                    on_newest(tuple(command)) if is_newest else tuple(command),
                    LONG.get(file.name, 0) / pieces,
                    is_alone=file.name in ALONE,
                    is_waiting=file.name in WAITING,
                )
            )
    return jobs


def scratch_of(scratch: Path, name: str) -> Path:
    """The directory of a job."""
    return scratch / name.replace(" ", "-").replace("/", "-of-")


def summary(results: list[Result], seconds: float, scratch: Path) -> str:
    """How many there were, and how to run again what failed."""

    def told(result: Result) -> list[str]:
        left = scratch_of(scratch, result.job.name)
        files = [f"  its files: {left}"] if left.exists() else []
        return [" ".join(again(result.job)), *files]

    return lanes.summary("sql", results, seconds, told)


def again(job: Job) -> list[str]:
    """The command of a job, with a directory of pytest's choice."""
    words = list(job.command)
    if "--basetemp" in words:
        at = words.index("--basetemp")
        del words[at : at + 2]
    return words


def main() -> int:
    """Runs them; 1 if one failed."""
    parser = argparse.ArgumentParser(description="All tests of the extension.")
    parser.add_argument("--lanes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="penstock-sql-"))
    files = options.files or sorted(HERE.glob("test_*.py"))
    jobs = pytest_jobs(files, scratch)
    if not options.files:
        subprocess.run([PREPARE, NEWEST_DUCKDB, "true"], check=True)
        both = [file for file in files if file.name not in ONCE]
        jobs += pytest_jobs(both, scratch, is_newest=True) + sqllogic_jobs()
    begin = time.monotonic()

    def tell(text: str) -> None:
        print(text, flush=True)

    def ended(result: Result) -> None:
        if not result.trouble:
            shutil.rmtree(scratch_of(scratch, result.job.name), ignore_errors=True)

    try:
        results = Lanes(options.lanes, tell, ended).run(jobs)
    except KeyboardInterrupt:
        shutil.rmtree(scratch, ignore_errors=True)
        end_by_interrupt()
        raise
    tell(summary(results, time.monotonic() - begin, scratch))
    if any(it.trouble for it in results):
        return 1
    shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
