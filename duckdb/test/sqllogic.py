"""Runs DuckDB's sqllogictest files on the duckdb wheel, against the fakes.

usage: sqllogic.py [FILE_OR_DIRECTORY...]        (default: duckdb/test/sql)

Understood: statement ok|error, query TYPES [nosort|rowsort|valuesort], require NAME, require-env
NAME, onlyif duckdb MAJOR (of the next record), load, reconnect, foreach/loop ... endloop, set NAME
VALUE, fault KIND LINE, faults-clear, and connection labels behind `statement ok` and `query`. In
SQL, {NAME} stands for a variable: {S3_SECRET}, {S3_ENDPOINT}, {AZURE_SECRET}, {AZURE_CONNECTION},
{BUCKET} (new for each file), what `set` and the loops define, and the environment. An expected
error is a part of the real text, or <REGEX>:pattern. An expected value may be <REGEX>:pattern too.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import duckdb
from harness import Fake, connect, load_penstock, load_pypi, start_fake

HERE = Path(__file__).resolve().parent


class TestFailedError(Exception):
    """A test does not hold; the text says where and why."""


@dataclass
class Record:
    """One directive, its SQL lines, and what stands behind ``----``."""

    line: int
    words: list[str]
    sql: str = ""
    expected: list[str] | None = None
    body: list[Record] = field(default_factory=list)


def parse(lines: list[str]) -> list[Record]:
    """The records of a file, loops with their bodies inside."""
    flat = list(_records(lines))
    return _nest(iter(flat), None)


def _records(lines: list[str]) -> Iterator[Record]:
    at = 0
    while at < len(lines):
        text = lines[at].strip()
        at += 1
        if not text or text.startswith("#"):
            continue
        record = Record(at, text.split())
        if record.words[0] in ("statement", "query"):
            sql: list[str] = []
            while at < len(lines) and not lines[at].startswith(("#", "----")) and lines[at].strip():
                sql.append(lines[at])
                at += 1
            record.sql = "\n".join(sql)
            if at < len(lines) and lines[at].strip() == "----":
                at += 1
                record.expected = []
                while at < len(lines) and lines[at].strip():
                    record.expected.append(lines[at].rstrip("\n"))
                    at += 1
        yield record


def _nest(records: Iterator[Record], opened: Record | None) -> list[Record]:
    inside: list[Record] = []
    for record in records:
        if record.words[0] == "endloop":
            if opened is None:
                raise TestFailedError(f"line {record.line}: endloop without a loop")
            return inside
        if record.words[0].removeprefix("concurrent") in ("foreach", "loop"):
            record.body = _nest(records, record)
        inside.append(record)
    if opened is not None:
        raise TestFailedError(f"line {opened.line}: loop without endloop")
    return inside


def shown(value: object) -> str:
    """A value as sqllogictest writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == "":
        return "(empty)"
    return str(value)


def matches(expected: str, actual: str) -> bool:
    """Whether a text is the expected one, or matches the expected pattern."""
    if expected.startswith("<REGEX>:"):
        return re.search(expected[len("<REGEX>:") :], actual, re.DOTALL) is not None
    return expected == actual


def is_for_this_duckdb(words: list[str]) -> bool:
    """What `onlyif duckdb MAJOR` says of the next record."""
    if len(words) != 3 or words[1] != "duckdb":
        raise TestFailedError(f"`{' '.join(words)}`: expected onlyif duckdb MAJOR")
    return duckdb.__version__.split(".")[0] == words[2]


class Run:
    """One file: its variables and connections."""

    def __init__(self, path: Path, fakes: dict[str, Fake], directory: Path) -> None:
        self.path = path
        self.fakes = fakes
        self.directory = directory
        bucket = re.sub("[^a-z0-9]+", "-", path.stem.lower()).strip("-")
        self.variables = {
            "BUCKET": f"t-{bucket}",
            "TEST_DIR": str(directory),
            "S3_SECRET": fakes["s3"].secret,
            "S3_ENDPOINT": fakes["s3"].address,
            "AZURE_SECRET": fakes["azure"].secret,
            "AZURE_CONNECTION": fakes["azure"].connection_string,
        }
        self.load = False
        self.database = ":memory:"
        self.main: duckdb.DuckDBPyConnection | None = None
        self.others: dict[str, duckdb.DuckDBPyConnection] = {}

    def run(self) -> None:
        """Runs the file to its first failure."""
        for fake in self.fakes.values():
            fake.reset()
        try:
            self._run_all(parse(self.path.read_text().splitlines()))
        finally:
            self._close()

    def _run_all(self, records: list[Record]) -> None:
        runs_next = True
        for record in records:
            if record.words[0] == "onlyif":
                runs_next = is_for_this_duckdb(record.words)
                continue
            if runs_next:
                self._run_one(record)
            runs_next = True

    def _run_one(self, record: Record) -> None:
        kind, *rest = [self._fill(word) for word in record.words]
        match kind:
            case "statement":
                self._statement(record, rest)
            case "query":
                self._query(record, rest)
            case "require":
                self._require(rest[0])
            case "require-env":
                if rest[0] not in os.environ:
                    raise TestFailedError(f"line {record.line}: the environment has no {rest[0]}")
            case "load":
                self._close()
                self.database = rest[0]
            case "reconnect":
                self._close()
            case "set":
                self.variables[rest[0]] = " ".join(rest[1:])
            case "fault":
                self.fakes[rest[0]].arm(" ".join(rest[1:]))
            case "faults-clear":
                for fake in self.fakes.values():
                    fake.reset()
            case "foreach" | "loop":
                values = rest[1:] if kind == "foreach" else map(str, range(*map(int, rest[1:3])))
                for value in values:
                    self.variables[rest[0]] = value
                    self._run_all(record.body)
            case _:
                raise TestFailedError(f"line {record.line}: unknown directive `{kind}`")

    def _require(self, name: str) -> None:
        if name == "penstock":
            self.load = True
            if self.main:
                load_penstock(self.main)
        elif name not in ("parquet", "json", "icu"):
            load_pypi(self._connection(None), name)

    def _connection(self, label: str | None) -> duckdb.DuckDBPyConnection:
        if self.main is None:
            self.main = duckdb.connect(self.database, config={"allow_unsigned_extensions": "true"})
            if self.load:
                load_penstock(self.main)
        if label is None:
            return self.main
        return self.others.setdefault(label, self.main.cursor())

    def _close(self) -> None:
        for con in [*self.others.values(), *([self.main] if self.main else [])]:
            con.close()
        self.others = {}
        self.main = None

    def _fill(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            return self.variables.get(name, os.environ.get(name, match[0]))

        return re.sub(r"\$?\{([A-Za-z_0-9]+)\}", value, text)

    def _statement(self, record: Record, words: list[str]) -> None:
        con = self._connection(words[1] if len(words) > 1 else None)
        sql = self._fill(record.sql)
        try:
            con.execute(sql)
        except duckdb.Error as error:
            if words[0] == "ok":
                raise TestFailedError(f"line {record.line}: {sql}\n  failed: {error}") from error
            wanted = self._fill("\n".join(record.expected or []))
            regex = wanted.startswith("<REGEX>:")
            if not (matches(wanted, str(error)) if regex else wanted in str(error)):
                raise TestFailedError(
                    f"line {record.line}: {sql}\n  expected: {wanted}\n  got: {error}"
                ) from error
        else:
            if words[0] == "error":
                raise TestFailedError(
                    f"line {record.line}: {sql}\n  succeeded, but should have failed"
                )

    def _query(self, record: Record, words: list[str]) -> None:
        types = words[0]
        sort = words[1] if len(words) > 1 else "nosort"
        con = self._connection(words[2] if len(words) > 2 else None)
        sql = self._fill(record.sql)
        try:
            rows = [[shown(cell) for cell in row] for row in con.execute(sql).fetchall()]
        except duckdb.Error as error:
            raise TestFailedError(f"line {record.line}: {sql}\n  failed: {error}") from error
        if rows and len(rows[0]) != len(types):
            raise TestFailedError(f"line {record.line}: {len(rows[0])} columns, not {len(types)}")
        wanted = [self._fill(line).split("\t") for line in record.expected or []]
        if len(types) > 1 and wanted and all(len(row) == 1 for row in wanted):
            cells = [row[0] for row in wanted]
            wanted = [cells[at : at + len(types)] for at in range(0, len(cells), len(types))]
        if sort == "rowsort":
            rows, wanted = sorted(rows), sorted(wanted)
        elif sort == "valuesort":
            rows = [[cell] for cell in sorted(cell for row in rows for cell in row)]
            wanted = [[cell] for cell in sorted(cell for row in wanted for cell in row)]
        same = len(rows) == len(wanted) and all(
            len(row) == len(want) and all(map(matches, want, row))
            for row, want in zip(rows, wanted, strict=True)
        )
        if not same:
            raise TestFailedError(f"line {record.line}: {sql}\n  expected: {wanted}\n  got: {rows}")


def main(arguments: list[str]) -> int:
    """Runs all files; the number of those that failed."""
    paths = [Path(argument) for argument in arguments] or [HERE / "sql"]
    found = [sorted(path.rglob("*.test")) if path.is_dir() else [path] for path in paths]
    files = list(chain.from_iterable(found))
    connect().close()  # an extension that does not load fails here, once
    fakes = {kind: start_fake(kind) for kind in ("s3", "azure")}
    failed = 0
    try:
        for file in files:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                try:
                    Run(file, fakes, Path(directory)).run()
                    verdict = "ok"
                except TestFailedError as failure:
                    verdict = f"FAILED\n  {failure}"
                except Exception:
                    verdict = f"FAILED\n{traceback.format_exc()}"
            failed += verdict != "ok"
            print(f"{file.name} ({time.monotonic() - begin:.1f} s): {verdict}", flush=True)
    finally:
        for fake in fakes.values():
            fake.stop()
    print(f"sql: {len(files) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
