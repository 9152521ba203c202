"""Prints docs/unsafe.md: how much `unsafe` is where, why, and what runs it.

usage: unsafe.py > docs/unsafe.md

Counts what the sources have; scripts/unsafe.tsv has the reasons. A place without a row is an error,
and so is a row without `unsafe`. That each block says why it is sound is a lint of the compiler's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "scripts/unsafe.tsv"
FOLDERS = ("crates", "duckdb/ffi")
# What is no code: comments, texts, and characters that would begin a text.
NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|"
    r'r(?P<fence>#*)".*?"(?P=fence)|"(?:\\.|[^"\\])*"|'
    r"'(?:\\.|[^'\\])'",
    re.S,
)
KINDS = {
    "blocks": re.compile(r"\bunsafe\s*\{"),
    "functions": re.compile(r"\bunsafe\s+(?:extern\b|fn\b)"),
    "impls": re.compile(r"\bunsafe\s+(?:impl|trait)\b"),
    "exported names": re.compile(r"#\[unsafe\("),
}
HEAD = """# `unsafe` in Penstock

`scripts/unsafe.py` prints this page from the sources and from `scripts/unsafe.tsv`; a test
compares them. Everywhere else `unsafe` does not compile (`unsafe_code = "deny"`), and lint refuses
a block without a comment that says why it is sound (`undocumented_unsafe_blocks`).

"""
TAIL = """
`scripts/sanitize.sh` runs these tests under the address sanitizer. Parsers of what others send, and
of what a disk holds, have no `unsafe`. Seen clean by hand on 28 November 2026: the device's tests
`conformance` (128), `xnvme` (44), and 21 of 69 of `volume`. The others have not been run so yet.
"""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    place: str
    why: str
    tests: str
    judge: str


def count(text: str) -> dict[str, int]:
    """How much of each kind a source has."""
    code = NO_CODE.sub(" ", text)
    return {kind: len(pattern.findall(code)) for kind, pattern in KINDS.items()}


def read_rows(text: str) -> list[Row]:
    """The table."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Row(*line.split("\t")) for line in lines]


def sources(root: Path) -> dict[str, dict[str, int]]:
    """Every file that has some."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.rs"))
    counts = {str(path.relative_to(root)): count(path.read_text()) for path in files}
    return {path: kinds for path, kinds in counts.items() if any(kinds.values())}


def place_of(path: str, rows: Iterable[Row]) -> Row | None:
    """The row of a file: its own, or that of its folder."""
    fitting = [
        row for row in rows if path == row.place or path.startswith(row.place.rstrip("/") + "/")
    ]
    return max(fitting, key=lambda row: len(row.place), default=None)


def complaints(found: dict[str, dict[str, int]], rows: list[Row]) -> list[str]:
    """What the table lacks, and what it has too much."""
    used = {row.place for path in found if (row := place_of(path, rows))}
    lacking = [f"{path}: unsafe without a row" for path in found if not place_of(path, rows)]
    idle = [f"{row.place}: a row without unsafe" for row in rows if row.place not in used]
    return lacking + idle


def page(found: dict[str, dict[str, int]], rows: list[Row]) -> str:
    """The page."""
    lines = [
        f"| place | {' | '.join(KINDS)} | why | tests | checked by |",
        "|---|" + "---:|" * len(KINDS) + "---|---|---|",
    ]
    for row in rows:
        mine = [kinds for path, kinds in found.items() if place_of(path, rows) is row]
        sums = " | ".join(str(sum(kinds[kind] for kinds in mine)) for kind in KINDS)
        lines.append(f"| `{row.place}` | {sums} | {row.why} | {row.tests} | {row.judge} |")
    return HEAD + "\n".join(lines) + "\n" + TAIL


def main() -> int:
    """Prints the page, or what is wrong with the table."""
    rows, found = read_rows(TABLE.read_text()), sources(ROOT)
    if wrong := complaints(found, rows):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    sys.stdout.write(page(found, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
