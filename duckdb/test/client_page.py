"""Writes the last section of docs/guide/moving.md: where Penstock differs from httpfs and azure.

usage: client_page.py

The section is made from judges/clients.tsv, which has a verdict and a reason for each of their test
files; a test compares the two. What stands before the section is written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from client_judge import LIST, VERSIONS, Row, read_list

PAGE = Path(__file__).resolve().parents[2] / "docs/guide/moving.md"
TITLE = "## What differs\n"
INTRODUCTION = """
The test files of httpfs and azure, from their public repositories, were run with Penstock alone
(`scripts/judges/duckdb-clients.sh`):

{counts}
The others cannot run on the test machine. They ask for accounts at Azure, for the Internet, or for
packages that are not there. Each difference:

| what differs | test files |
| --- | ---: |
"""


def differences(rows: Mapping[str, Row]) -> dict[str, int]:
    """Reason to the number of test files that differ for it, on any version; most files first."""
    found: dict[str, int] = {}
    for row in rows.values():
        if "differs" in row.verdicts.values():
            for reason in row.reason.split("; "):
                found[reason] = found.get(reason, 0) + 1
    return dict(sorted(found.items(), key=lambda it: (-it[1], it[0].lower())))


def counts(rows: Mapping[str, Row]) -> str:
    """How many files pass on each version, of those that can run there: a line each."""
    lines = []
    for version in VERSIONS:
        verdicts = [row.verdicts[version] for row in rows.values()]
        passed, differing = verdicts.count("pass"), verdicts.count("differs")
        lines.append(f"- DuckDB {version}: {passed} of {passed + differing} pass.\n")
    return "".join(lines)


def section(rows: Mapping[str, Row]) -> str:
    """The section, with its title."""
    table = "".join(f"| {it} | {files} |\n" for it, files in differences(rows).items())
    return TITLE + INTRODUCTION.format(counts=counts(rows)) + table


def main() -> None:
    """Puts the section in place of the one that the page has."""
    before, _, _ = PAGE.read_text().partition(TITLE)
    PAGE.write_text(before + section(read_list(LIST.read_text())))


if __name__ == "__main__":
    main()
