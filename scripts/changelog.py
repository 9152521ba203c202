"""Writes the section of the next release into CHANGELOG.md, from the commits since the last one.

usage: changelog.py write VERSION | changelog.py check VERSION

`write` puts a draft under the title: the subjects of the commits since the last tag, sorted by what
they touch and so by whom they concern. Most commits concern nobody who uses Penstock, and no
program can tell which. So a person then strikes and joins lines, and dates the version.
`check` refuses a release whose section is missing, or is still the draft.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "CHANGELOG.md"
DRAFT = "draft"
"""Stands where the day of a release will."""
AREAS = (
    ("DuckDB extension", re.compile(r"duckdb/(src|ffi)/")),
    ("Gateway", re.compile(r"crates/gateway/src/|deploy/")),
    ("NVMe volumes and caches on devices", re.compile(r"crates/device/src/|crates/cli/src/nvme")),
    ("Command line", re.compile(r"crates/cli/src/")),
    ("Python", re.compile(r"python/src/|python/pyproject")),
    ("Stores", re.compile(r"crates/store/src/")),
    ("Engine", re.compile(r"crates/(engine|base)/src/")),
)
"""The first that a commit touches has it; what touches none concerns developers only."""


class ProblemError(Exception):
    """What keeps a release from being made."""


def area(paths: list[str]) -> str | None:
    """Whom a commit with these files concerns."""
    return next((name for name, files in AREAS if any(map(files.match, paths))), None)


def section(version: str, commits: list[tuple[str, list[str]]]) -> str:
    """The draft, of subjects and files of commits, the oldest first."""
    found: dict[str, list[str]] = {name: [] for name, _ in AREAS}
    for subject, paths in commits:
        if name := area(paths):
            found[name].append(f"- {subject}")
    parts = [f"### {name}\n\n" + "\n".join(lines) + "\n" for name, lines in found.items() if lines]
    return f"## {version} ({DRAFT})\n\n" + "\n".join(parts)


def insert(text: str, draft: str) -> str:
    """The file with a draft before its newest section."""
    before, mark, after = text.partition("\n## ")
    return f"{before}\n{draft}{mark}{after}"


def heads(text: str) -> dict[str, str]:
    """Version to what stands behind it."""
    return dict(re.findall(r"^## (\S+) \((.*)\)$", text, re.M))


def check(text: str, version: str) -> None:
    """Refuses a release that the file does not describe."""
    day = heads(text).get(version)
    if day is None:
        raise ProblemError(
            f"CHANGELOG.md has no section {version}: run scripts/changelog.py write {version}, "
            "strike what concerns no user, put the day behind the version, and commit it"
        )
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
        raise ProblemError(
            f"the section {version} of CHANGELOG.md is still a draft ({day}): strike what concerns "
            "no user, put the day behind the version (2026-11-28), and commit it"
        )


def git(*arguments: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def commits_since_last_tag() -> list[tuple[str, list[str]]]:
    """Subjects and files, the oldest first; without merges."""
    tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").split()
    span = f"{tags[0]}..HEAD" if tags else "HEAD"
    told = git("log", "--no-merges", "--reverse", "--format=%x00%s", "--name-only", span)
    entries = [entry.split("\n") for entry in told.split("\0")[1:]]
    return [(subject, [path for path in paths if path]) for subject, *paths in entries]


def write(version: str) -> None:
    """Puts the draft into the file."""
    text = FILE.read_text()
    if version in heads(text):
        raise ProblemError(f"CHANGELOG.md has a section {version} already")
    FILE.write_text(insert(text, section(version, commits_since_last_tag())))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=["write", "check"])
    parser.add_argument("version")
    given = parser.parse_args()
    try:
        if given.verb == "write":
            write(given.version)
        else:
            check(FILE.read_text(), given.version)
    except ProblemError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
