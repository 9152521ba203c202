"""Which objects of DuckDB's core are compiled, and of which sources.

usage: ninja -t inputs duckdb_static | duckdb-core-objects.py TREE BUILD

Reads the objects of the whole core, prints those that hold a source which
duckdb-core-sources.txt keeps. CMake joins the sources of a folder into one unit: the others are
taken out of it. A unit that is as it should be stays untouched, so that it is not compiled again.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

TABLE = Path(__file__).with_name("duckdb-core-sources.txt")
INCLUDE = re.compile(r'#include [<"](.*)[>"]')


def read_rows(text: str) -> dict[str, bool]:
    """Beginning of a path to whether its sources are compiled."""
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    if wrong := [row for row in rows if row[0] not in "+-"]:
        raise ValueError(f"{wrong[0]} is neither + nor - and a path")
    return {row[1:]: row[0] == "+" for row in rows}


def is_kept(source: str, rows: dict[str, bool]) -> bool:
    """What the longest row says that begins the source."""
    return rows[max((row for row in rows if source.startswith(row)), key=len)]


def trimmed(text: str, folder: Path, tree: Path, rows: dict[str, bool]) -> str:
    """A unit without the sources that are left out; empty if none is kept.

    Units name sources from the root (DuckDB 1.5) or from their own folder (2.0).
    """
    kept = [
        line
        for line in text.splitlines()
        if (source := INCLUDE.fullmatch(line))
        and is_kept(os.path.relpath(folder / source[1], tree), rows)
    ]
    return "\n".join([*kept, ""]) if kept else ""


def objects(names: Iterable[str], tree: Path, build: Path, rows: dict[str, bool]) -> list[str]:
    """Those that hold a source which is kept; trims the units."""
    found = []
    for name in names:
        source = re.sub(r"CMakeFiles/[^/]+\.dir/|\.o$", "", name)
        unit = build / source
        if not unit.name.startswith("ub_"):
            if is_kept(source, rows):
                found.append(name)
            continue
        whole = unit.read_text()
        text = trimmed(whole, unit.parent, tree, rows)
        if text and text != whole:
            scratch = unit.with_suffix(".new")
            scratch.write_text(text)
            scratch.replace(unit)
        if text:
            found.append(name)
    return found


def main() -> None:
    """Prints the objects, one a line."""
    tree, build = Path(sys.argv[1]), Path(sys.argv[2])
    rows = {"": True, **read_rows(TABLE.read_text())}
    names = [line for line in sys.stdin.read().split() if line.endswith(".o")]
    print(*objects(names, tree, build, rows), sep="\n")


if __name__ == "__main__":
    main()
