"""The blocks of a page, and the commands in them.

Decides what is a command: a statement of SQL, a program of Python, a line of a shell with the lines
that continue it. `docs-not-run.tsv` lists those that cannot be run here, each with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from harness import ROOT

LIST = Path(__file__).with_name("docs-not-run.tsv")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("bash", "console")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for a message."""
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """All blocks of a page, from its begin to its end."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in BLOCK.finditer(text)
    ]


@dataclass
class Command:
    """A command, and the lines that the page shows as its output."""

    text: str
    shown: list[str] = field(default_factory=list)


def commands(block: Block) -> list[Command]:
    """The commands of a block; a program, or what a page only shows, is one."""
    if block.language == "sql":
        return [Command(it.query.strip()) for it in duckdb.extract_statements(block.text)]
    if block.language not in SHELLS:
        return [Command(block.text)]
    found: list[Command] = []
    lines = iter(block.text.splitlines())
    for line in lines:
        if block.language == "console" and not line.startswith("$ "):
            found[-1].shown.append(line)
        elif line:
            text = line.removeprefix("$ ")
            while text.endswith("\\"):
                text += "\n" + next(lines)
            found.append(Command(text))
    return found


Rows = dict[tuple[str, str], str]


def listed(text: str) -> Rows:
    """The reason by page and begin of the first line."""
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return {(page, begin): reason for page, begin, reason in rows}


def row_of(block: Block, command: Command, rows: Rows) -> tuple[str, str] | None:
    """The row of a command that is not run."""
    first_line = command.text.split("\n", 1)[0]
    return next(
        (row for row in rows if row[0] == block.page and first_line.startswith(row[1])), None
    )


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, hashes, widths."""
    return re.sub(r"\b[0-9a-f]*\d[0-9a-f]*\b|\d+", "#", " ".join(line.split()))


def not_told(shown: list[str], output: str) -> list[str]:
    """The lines of a page that are not in an output, in their order; `...` stands for anything."""
    told = iter([shape(line) for line in output.splitlines()])
    return [
        line
        for line in shown
        if not any(
            re.fullmatch(re.escape(shape(line)).replace(re.escape("..."), ".*"), it) for it in told
        )
    ]
