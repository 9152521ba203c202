"""Runs DuckDB's own storage tests (test/sql/storage of a checkout) on databases of a volume.

usage: scripts/judges/duckdb-storage.sh CHECKOUT [--on nvme|file] [--slow] [--brief] [--update]
       [--times] [PATTERN...]

Each file is a process of its own. What `load` and ATTACH name in the test's directory becomes a
database of a volume; with `--on file` it stays a file, which tells what a failure is owed to. The
list judges/storage-passes.txt holds what passes, judges/storage-cannot.tsv what cannot and why; a
test that is in neither and fails, or that is in the list and fails, is a failure of the run, and so
is a row of what cannot pass once nothing of it fails. With `--slow` those that DuckDB calls slow
are run too, of which not all have been run yet; with `--brief` those of judges/storage-brief.txt,
which take a minute.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nvme import format_volume
from sqllogic import TestFailedError
from storage_run import SkippedError, StorageRun

HERE = Path(__file__).resolve().parent
LISTS = HERE / "judges"
TIMEOUT_S = 180


def run_one(path: Path, checkout: Path, on: str) -> str:
    """The verdict on one file: ok, skipped, or what failed."""
    os.chdir(checkout)
    with tempfile.TemporaryDirectory() as directory:
        inside = Path(directory) / "test"
        inside.mkdir()
        volume = format_volume(Path(directory) / "disk", "2GiB") if on == "nvme" else None
        try:
            StorageRun(path, checkout, inside, volume).run()
        except SkippedError as skipped:
            return f"skipped: {skipped}"
        except TestFailedError as failure:
            return f"failed: {failure}"
    return "ok"


def judge(path: Path, checkout: Path, on: str) -> tuple[str, float]:
    """As run_one, in a process of its own; and how many seconds it took."""
    begin = time.monotonic()
    return judge_apart(path, checkout, on), time.monotonic() - begin


def judge_apart(path: Path, checkout: Path, on: str) -> str:
    """The verdict of a process of its own."""
    command = [sys.executable, __file__, str(checkout), "--on", on, "--one", str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"failed: not done after {TIMEOUT_S} s"
    ending = f"failed: exit code {done.returncode}: {done.stderr[-300:]}"
    return done.stdout.strip() if done.returncode == 0 else ending


def cannot() -> list[tuple[str, str]]:
    """Patterns of tests that cannot pass, and the reasons."""
    lines = (LISTS / "storage-cannot.tsv").read_text().splitlines()
    pairs = (line.split("\t", 1) for line in lines if line and not line.startswith("#"))
    return [(pattern, reason) for pattern, reason in pairs]


def surprises(
    found: dict[str, str],
    passes: set[str],
    rows: list[tuple[str, str]],
    on: str,
    names: Collection[str],
) -> list[str]:
    """What of the verdicts the lists do not say; a row is judged if all that it means was run."""
    told = []
    for name, verdict in found.items():
        is_known = any(fnmatch.fnmatch(name, pattern) for pattern, _ in rows)
        if verdict != "ok" and (name in passes or not is_known):
            told.append(f"{name}: {verdict}")
    for pattern, _ in rows if on == "nvme" else []:
        meant = fnmatch.filter(names, pattern)
        if meant and all(found.get(name) == "ok" for name in meant):
            told.append(f"{pattern}: passes, take its row out of storage-cannot.tsv")
    return told


def main() -> int:
    """Runs the tests and compares with the lists; the number of surprises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--on", choices=["nvme", "file"], default="nvme")
    parser.add_argument("--one", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--times", action="store_true")
    asked = parser.parse_intermixed_args()
    checkout = asked.checkout.resolve()
    if asked.one:
        print(run_one(asked.one, checkout, asked.on))
        return 0
    root = checkout / "test/sql/storage"
    kinds = ("*.test", "*.test_slow") if asked.slow else ("*.test",)
    files = sorted(path for kind in kinds for path in root.rglob(kind))
    names = {str(path.relative_to(root)): path for path in files}
    patterns = asked.patterns
    if asked.brief:
        patterns = (LISTS / "storage-brief.txt").read_text().split()
        idle = [it for it in patterns if not fnmatch.filter(names, it)]
        assert not idle, f"storage-brief.txt names nothing of this checkout by {idle}"
    chosen = [name for name in names if any(fnmatch.fnmatch(name, it) for it in patterns)]
    list_file = LISTS / "storage-passes.txt"
    passes = set(list_file.read_text().split()) if list_file.exists() else set()
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        verdicts = threads.map(lambda name: judge(names[name], checkout, asked.on), chosen)
        judged = dict(zip(chosen, verdicts, strict=True))
    if asked.times:
        for name, (_, seconds) in sorted(judged.items(), key=lambda it: -it[1][1]):
            print(f"{seconds:7.2f} s  {name}")
    found = {name: verdict for name, (verdict, _) in judged.items()}
    unexpected = surprises(found, passes, cannot(), asked.on, names)
    print(*unexpected, sep="\n", end="\n" if unexpected else "")
    good = {name for name, verdict in found.items() if verdict == "ok"}
    if asked.update:
        list_file.write_text("".join(f"{name}\n" for name in sorted(passes | good)))
    seconds = time.monotonic() - begin
    print(f"{len(good)} of {len(found)} pass, {len(unexpected)} surprises, {seconds:.0f} s")
    return len(unexpected) + (not found)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
