"""The mutation check: faults are planted in what decides, and each must make a test fail.

usage: mutants.py CARGO_MUTANTS [--every N] [--from K] [--crate NAME]

cargo-mutants lists the faults that it can plant in the files of mutants.toml (a comparison turned
round, a check left out, another value returned). Of these each Nth is planted, from the Kth on, so
that the same source gives the same sample. First the unit tests of the crate run; what they do not
notice is tried on its other tests. A fault that nothing notices is an error unless
mutants-survive.tsv names it with a reason, and so is a row there for a fault that is noticed.

It works in a copy of the checkout (build/mutants), so that a run that is stopped leaves no fault.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
WORK = ROOT / "build/mutants"
EVERY = 13
"""One fault in so many: about sixty-five of them."""
TIMEOUT_S = 120
"""Longest time of the tests on one fault; what hangs counts as noticed."""
OUTCOMES = ("caught", "missed", "timeout", "unviable")


@dataclass(frozen=True)
class Crate:
    """What is tried in a crate."""

    name: str
    files: list[str]
    tests: list[str]


def crates(text: str) -> list[Crate]:
    """What mutants.toml says."""
    return [
        Crate(name, it["files"], it["tests"].split()) for name, it in tomllib.loads(text).items()
    ]


def sample(faults: list[int], every: int, first: int) -> list[int]:
    """Each Nth fault, from one on."""
    return faults[first % every :: every]


def plain(fault: str) -> str:
    """The fault without line and column, which other changes move."""
    return re.sub(r"^([^:]+):\d+:\d+: ", r"\1: ", fault)


def read_survivors(text: str) -> dict[str, str]:
    """Fault to the reason why no test can notice it."""
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    if wrong := [row for row in rows if len(row) != 2 or not all(part.strip() for part in row)]:
        raise ValueError(f"{wrong[0]} is not a fault, a tab and a reason")
    return dict(rows)


def complaints(
    missed: Iterable[str], noticed: Iterable[str], known: Mapping[str, str]
) -> list[str]:
    """What differs from the list of survivors."""
    unknown = [f"no test notices: {fault}" for fault in missed if plain(fault) not in known]
    # Several faults may have one name without their columns: a row stands while one survives.
    surviving = {plain(fault) for fault in missed}
    gone = sorted({plain(fault) for fault in noticed} & set(known) - surviving)
    return unknown + [f"is noticed now: remove it from the list: {fault}" for fault in gone]


def copy_checkout() -> Path:
    """A copy of what git knows. What is the same keeps its time, so that little is built anew."""
    tree = WORK / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, tree / name
        if not source.is_file() or (target.is_file() and filecmp.cmp(source, target, False)):
            continue
        # With the time of now: it replaces what a run that was stopped has left, and that is newer
        # than the source.
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return tree


def cargo_mutants(program: str, tree: Path, words: list[str], tests: list[str]) -> str:
    """Runs cargo-mutants in the copy; what it prints."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(WORK / "target"),
        "CARGO_INCREMENTAL": "1",
        "CARGO_PROFILE_DEV_DEBUG": "false",
    }
    command = [program, "mutants", "--colors", "never", *words]
    if tests:
        command += ["--", *tests]
    run = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    # 2: some are missed, 3: some hang; else it could not work at all.
    if run.returncode not in (0, 2, 3):
        raise SystemExit(f"cargo-mutants failed ({run.returncode}):\n{run.stdout}")
    return run.stdout


def plant(program: str, tree: Path, crate: Crate, at: tuple[int, int], tests: list[str]) -> str:
    """Plants the fault at a place of the list, of so many, and runs tests; its outcome.

    By its place and not by its name: cargo-mutants 27.1.0 filters no fault that deletes a field.
    """
    output = WORK / "out"
    shard = ["--sharding", "round-robin", "--shard", f"{at[0]}/{at[1]}"]
    # Without a run on the whole tree first: the Rust stage has shown that its tests pass.
    words = ["--in-place", "--baseline", "skip", "--timeout", str(TIMEOUT_S), *shard]
    words += ["--cargo-arg=--locked", "-o", str(output), *where(crate)]
    cargo_mutants(program, tree, words, tests)
    told = output / "mutants.out"
    return next(name for name in OUTCOMES if (told / f"{name}.txt").read_text())


def where(crate: Crate) -> list[str]:
    """The files of a crate, as cargo-mutants is told."""
    return ["-p", crate.name, *(word for file in crate.files for word in ("-f", file))]


def check(program: str, tree: Path, crate: Crate, options: argparse.Namespace) -> dict[str, str]:
    """Fault to outcome, of a crate's sample."""
    faults = cargo_mutants(program, tree, ["--list", *where(crate)], []).splitlines()
    outcomes = {}
    for number in sample(list(range(len(faults))), options.every, options.first):
        at = (number, len(faults))
        outcome = plant(program, tree, crate, at, ["--lib"])
        if outcome == "missed":
            outcome = plant(program, tree, crate, at, crate.tests)
        print(f"{outcome}: {faults[number]}", flush=True)
        outcomes[faults[number]] = outcome
    return outcomes


def main() -> int:
    """Runs the check; 1 if something is not as the list of survivors says."""
    parser = argparse.ArgumentParser(description="Plants faults, and tells what no test notices.")
    parser.add_argument("program")
    parser.add_argument("--every", type=int, default=EVERY)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--crate")
    options = parser.parse_args()
    known = read_survivors((SCRIPTS / "mutants-survive.tsv").read_text())
    tree = copy_checkout()
    outcomes: dict[str, str] = {}
    for crate in crates((SCRIPTS / "mutants.toml").read_text()):
        if options.crate in (None, crate.name):
            outcomes |= check(options.program, tree, crate, options)
    missed = [fault for fault, outcome in outcomes.items() if outcome == "missed"]
    noticed = [fault for fault, outcome in outcomes.items() if outcome in ("caught", "timeout")]
    differences = complaints(missed, noticed, known)
    print(*differences, sep="\n")
    told = list(outcomes.values())
    counts = ", ".join(f"{told.count(name)} {name}" for name in OUTCOMES)
    print(f"faults planted: {len(told)} ({counts})")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
