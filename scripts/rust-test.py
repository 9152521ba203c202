"""All tests of the workspace in Rust, on both cores.

usage: PYTHONPATH=duckdb/test rust-test.py [--lanes N] [OPTION OF CARGO...]

Cargo builds the programs, and tests what documentation shows. It would run one program after the
other, of which many are a single test, or end with one that takes long: half of the machine waits.
Here several run at once. A program of many files (`FILES`) is a process for each file.
One file is run by itself like this: `cargo test -p penstock-engine --test engine cache::`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from lanes import Job, Result, run_stage, tell

ROOT = Path(__file__).resolve().parents[1]
CARGO = ("cargo", "test", "--workspace", "--locked", "--quiet")
LONG = {
    "crates/engine test faults": 60,
    "crates/engine test scans": 30,
    "crates/engine test side_by_side": 30,
    "crates/device test volume": 20,
    "crates/engine lib penstock_engine": 20,
    "crates/engine test simulation": 15,
}
"""Seconds of the programs that take long, about: they begin first."""
FILES = ("crates/engine test engine", "crates/gateway test gateway")
"""Programs that are made of many files of tests."""


def programs(messages: Iterable[str]) -> list[Job]:
    """The programs that Cargo tells of, each in the directory of its package as Cargo runs it."""
    jobs = []
    of_files = set(FILES)
    for message in map(json.loads, messages):
        is_test = message["reason"] == "compiler-artifact" and message["profile"]["test"]
        if not is_test or not message["executable"]:
            continue
        package, target = Path(message["manifest_path"]).parent, message["target"]
        name = f"{package.relative_to(ROOT)} {'/'.join(target['kind'])} {target['name']}"
        command = ("env", "-C", f"{package}", message["executable"])
        if name in FILES:
            of_files.remove(name)
            listed = subprocess.run((*command, "--list"), stdout=subprocess.PIPE, check=True)
            jobs += jobs_of_files(name, command, listed.stdout.decode())
        else:
            jobs.append(Job(name, (*command, "--quiet"), LONG.get(name, 0)))
    if of_files:
        raise SystemExit(f"there is no {', '.join(of_files)}: mend FILES")
    return jobs


def jobs_of_files(name: str, command: tuple[str, ...], listed: str) -> list[Job]:
    """One for each file of a program, from what the program lists: `FILE::TEST: test`."""
    tests: dict[str, list[str]] = {}
    for line in listed.splitlines():
        test, is_test, _ = line.partition(": test")
        if is_test:
            tests.setdefault(test.partition("::")[0], []).append(test)
    return [
        Job(f"{name} {file}", (*command, "--quiet", "--exact", *names))
        for file, names in sorted(tests.items())
    ]


def again(result: Result) -> list[str]:
    """How to run it again."""
    return [" ".join(result.job.command)]


def main() -> int:
    """Builds and runs them; 1 if one failed."""
    parser = argparse.ArgumentParser(description="All tests of the workspace in Rust.")
    parser.add_argument("--lanes", type=int, default=min(2, os.cpu_count() or 1))
    options, more = parser.parse_known_args()
    build = [*CARGO, *more, "--no-run", "--message-format=json-render-diagnostics"]
    begin = time.monotonic()
    built = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        return 1
    jobs = programs(built.stdout.splitlines())
    if missing := set(LONG) - {job.name for job in jobs}:
        raise SystemExit(f"there is no {', '.join(missing)}: mend LONG")
    tell(f"built {len(jobs)} programs of tests in {time.monotonic() - begin:.0f} s")
    jobs.append(Job("what documentation shows", (*CARGO, *more, "--doc")))
    return run_stage("rust", options.lanes, jobs, again)


if __name__ == "__main__":
    sys.exit(main())
