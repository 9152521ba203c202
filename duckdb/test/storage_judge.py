"""Runs DuckDB's own storage tests (test/sql/storage of a checkout) on databases of a volume.

usage: scripts/judges/duckdb-storage.sh CHECKOUT [--on nvme|file] [--update] [PATTERN...]

Each file is a process of its own. What `load` and ATTACH name in the test's directory becomes a
database of a volume; with `--on file` it stays a file, which tells what a failure is owed to. The
list judges/storage-passes.txt holds what passes, judges/storage-cannot.tsv what cannot and why; a
test that is in neither and fails, or that is in the list and fails, is a failure of the run.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import hashlib
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
from harness import connect
from nvme import format_volume, penstock
from sqllogic import Record, TestFailedError, matches, parse

HERE = Path(__file__).resolve().parent
LISTS = HERE / "judges"
TIMEOUT_S = 180
# What `require` may ask for without anything having to be done.
GIVEN = {
    "skip_reload",
    "noforcestorage",
    "no_alternative_verify",
    "no_latest_storage",
    "no_vector_verification",
    "no_extension_autoloading",
    "parquet",
    "json",
    "64bit",
    "notwindows",
    "core_functions",
}
VECTOR_SIZE, BLOCK_SIZE = 2048, 262144
SIGNED = ["tinyint", "smallint", "integer", "bigint", "hugeint"]
UNSIGNED = [f"u{name}" for name in SIGNED]
NUMERIC = [*SIGNED, *UNSIGNED, "float", "double"]
# What a loop over a group goes over.
GROUPS = {
    "<signed>": SIGNED,
    "<unsigned>": UNSIGNED,
    "<integral>": [*SIGNED, *UNSIGNED],
    "<numeric>": NUMERIC,
    "<alltypes>": [*NUMERIC, "bool", "interval", "varchar"],
    "<compression>": [
        "uncompressed",
        "rle",
        "bitpacking",
        "dictionary",
        "fsst",
        "alp",
        "alprd",
        "zstd",
        "roaring",
    ],
}


class SkippedError(Exception):
    """The test asks for what this runner has not."""


class StorageRun:
    """One test file."""

    def __init__(self, path: Path, checkout: Path, directory: Path, volume: Path | None) -> None:
        self.path, self.checkout, self.directory, self.volume = path, checkout, directory, volume
        self.variables: dict[str, str] = {}
        self.main: duckdb.DuckDBPyConnection | None = None
        self.others: dict[str, duckdb.DuckDBPyConnection] = {}
        self.database: tuple[str, str] | None = None
        self.labels: dict[str, list[list[str]]] = {}
        self.skipping = False

    def run(self) -> None:
        """Runs the file to its first failure."""
        try:
            self.records(parse(self.path.read_text().splitlines()), self.variables)
        finally:
            self.close()

    def records(self, records: list[Record], variables: dict[str, str]) -> None:
        """Runs records one after the other."""
        wanted = True
        for record in records:
            if record.words[0] in ("onlyif", "skipif"):
                holds = condition("".join(record.words[1:]), variables)
                wanted = wanted and holds == (record.words[0] == "onlyif")
                continue
            if record.words[0] == "mode":
                self.skipping = record.words[1] == "skip"
            elif wanted and not self.skipping:
                self.one(record, variables)
            wanted = True

    def one(self, record: Record, variables: dict[str, str]) -> None:
        """Runs one record."""
        kind, *rest = [self.fill(word, variables) for word in record.words]
        match kind:
            case "statement":
                self.statement(record, rest, variables)
            case "query":
                self.query(record, rest, variables)
            case "require":
                require(rest)
            case "load":
                self.load(rest)
            case "restart" | "reconnect":
                self.close()
            case "unzip":
                source = self.checkout / rest[0]
                target = Path(rest[1]) if len(rest) > 1 else self.directory / source.stem
                target.write_bytes(gzip.decompress(source.read_bytes()))
            case "foreach" | "loop" | "concurrentforeach" | "concurrentloop":
                self.loop(kind, rest, record, variables)
            case "set" if rest[0] == "seed":
                self.connection(None).execute(f"SELECT setseed({rest[1]})")
            case "reset":
                self.labels.pop(rest[1], None)
            case "tags" | "hash-threshold":
                pass
            case _:
                raise SkippedError(f"the runner does not know `{kind}`")

    def loop(self, kind: str, words: list[str], record: Record, variables: dict[str, str]) -> None:
        """A loop, of which each round is a thread if it is concurrent."""
        if "foreach" in kind:
            values = [one for word in words[1:] for one in GROUPS.get(word, [word])]
        else:
            values = [str(one) for one in range(int(words[1]), int(words[2]))]
        rounds = [{**variables, words[0]: value} for value in values]
        if kind.startswith("concurrent"):
            self.connection(None)
            with ThreadPoolExecutor(len(rounds)) as threads:
                labelled = [{**one, "": f"thread {index}"} for index, one in enumerate(rounds)]
                list(threads.map(lambda one: self.records(record.body, one), labelled))
            return
        for one in rounds:
            self.records(record.body, one)

    def load(self, words: list[str]) -> None:
        """The main database from here on."""
        self.close()
        self.database = None
        if words and words[0] != ":memory:":
            options = ""
            if len(words) > 1 and words[1] == "readonly":
                options = "(READ_ONLY)"
            elif len(words) > 2:
                options = f"(STORAGE_VERSION '{words[2]}')"
            name = re.split(r"[.?]", Path(words[0]).name)[0]
            if words[0].startswith(str(self.directory)) and len(words) < 2:
                Path(words[0]).unlink(missing_ok=True)
            self.database = (f"ATTACH '{self.place(words[0])}' AS \"{name}\" {options}", name)

    def place(self, path: str) -> str:
        """Where a database of the test's directory lies."""
        if self.volume is None or not path.startswith(f"{self.directory}/"):
            return path
        name = path[len(f"{self.directory}/") :]
        if Path(path).is_file():
            # What was unzipped.
            penstock("import", self.volume, path, "--db", name.removesuffix(".db"))
            Path(path).unlink()
        # As DuckDB names a database after a file.
        return f"nvme://{self.volume}?db={name.removesuffix('.db')}"

    def connection(self, label: str | None) -> duckdb.DuckDBPyConnection:
        """The connection of a label; opened when it is first used."""
        if self.main is None:
            self.main = connect(load=self.volume is not None)
            if self.database:
                self.main.execute(self.database[0])
                self.main.execute(f'USE "{self.database[1]}"')
        if not label:
            return self.main
        if label not in self.others:
            self.others[label] = self.main.cursor()
            if self.database:
                self.others[label].execute(f'USE "{self.database[1]}"')
        return self.others[label]

    def close(self) -> None:
        """Closes everything, as the end of a process does."""
        for con in [*self.others.values(), *([self.main] if self.main else [])]:
            con.close()
        self.others, self.main = {}, None

    def fill(self, text: str, variables: dict[str, str]) -> str:
        """Puts in what stands in braces."""
        known = {
            "TEST_DIR": str(self.directory),
            "TEMP_DIR": str(self.directory),
            "DATA_DIR": str(self.checkout / "data"),
            **variables,
        }
        text = text.replace("__TEST_DIR__", str(self.directory))
        text = text.replace("__WORKING_DIRECTORY__", str(self.checkout))
        return re.sub(r"\$?\{([A-Za-z_0-9]+)\}", lambda found: known.get(found[1], found[0]), text)

    def sql(self, record: Record, variables: dict[str, str]) -> str:
        """The statement, with its databases on the volume."""
        sql = self.fill(record.sql, variables)
        if re.match(r"\s*ATTACH\b", sql, re.IGNORECASE):
            sql = re.sub(r"'([^']+)'", lambda it: f"'{self.place(it[1])}'", sql, count=1)
        return sql

    def statement(self, record: Record, words: list[str], variables: dict[str, str]) -> None:
        """A statement that succeeds, fails, or may do either."""
        con = self.connection(words[1] if len(words) > 1 else variables.get(""))
        sql = self.sql(record, variables)
        try:
            con.execute(sql).fetchall()
        except duckdb.Error as error:
            if words[0] == "ok":
                raise TestFailedError(f"line {record.line}: {sql}\n  failed: {error}") from error
            wanted = self.fill("\n".join(record.expected or []), variables).strip()
            same = matches(wanted, str(error)) if wanted[:1] == "<" else wanted in str(error)
            if words[0] == "error" and not same:
                told = f"line {record.line}: {sql}\n  expected: {wanted}\n  got: {error}"
                raise TestFailedError(told) from error
        else:
            if words[0] == "error":
                raise TestFailedError(f"line {record.line}: {sql}\n  should have failed")

    def query(self, record: Record, words: list[str], variables: dict[str, str]) -> None:
        """A query whose result is known, or the same as another's."""
        sort = words[1] if len(words) > 1 and words[1].endswith("sort") else "nosort"
        sort = "rowsort" if sort == "sort" else sort
        names = [word for word in words[1:] if not word.endswith("sort")]
        label = names[-1] if len(words) > 2 else None
        con = self.connection(
            names[0] if names and names[0].startswith("con") else variables.get("")
        )
        sql = self.sql(record, variables)
        try:
            rows = texts(con, sql)
        except duckdb.Error as error:
            raise TestFailedError(f"line {record.line}: {sql}\n  failed: {error}") from error
        if sort == "rowsort":
            rows = sorted(rows)
        elif sort == "valuesort":
            rows = [[cell] for cell in sorted(cell for row in rows for cell in row)]
        wanted = [self.fill(line, variables) for line in record.expected or []]
        if label and label == names[-1] and not label.startswith("con"):
            known = self.labels.setdefault(label, rows)
            if not wanted and known != rows:
                raise TestFailedError(f"line {record.line}: not the result of {label}: {rows[:5]}")
        # A label and nothing behind it: the rows were compared above.
        is_told = record.expected is not None and (wanted or not label)
        if is_told and not same_rows(wanted, rows, sort):
            told = f"line {record.line}: {sql}\n  expected: {wanted[:9]}\n  got: {rows[:9]}"
            raise TestFailedError(told)


def condition(text: str, variables: dict[str, str]) -> bool:
    """Whether a comparison of a loop's variable holds."""
    found = re.fullmatch(r"(\w+)(<>|<=|>=|=|<|>)(.*)", text)
    if not found:
        return False
    left, operator, right = variables.get(found[1], ""), found[2], found[3]
    if operator in ("=", "<>"):
        return (left == right) == (operator == "=")
    a, b = float(left), float(right)
    return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[operator]


def require(words: list[str]) -> None:
    """Skips the test if it asks for what is not here."""
    name, size = words[0], int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    fits = {
        "vector_size": size <= VECTOR_SIZE,
        "exact_vector_size": size == VECTOR_SIZE,
        "block_size": size == BLOCK_SIZE,
    }
    if not fits.get(name, name in GIVEN):
        raise SkippedError(f"asks for {' '.join(words)}")


def texts(con: duckdb.DuckDBPyConnection, sql: str) -> list[list[str]]:
    """A result as DuckDB writes it."""
    if re.match(r"\s*(INSERT|UPDATE|DELETE|MERGE|COPY)\b", sql, re.IGNORECASE):
        return [[str(cell) for cell in row] for row in con.execute(sql).fetchall()]
    relation = con.query(sql)
    if relation is None:
        return []
    casts = ", ".join(f"#{index + 1}::VARCHAR" for index in range(len(relation.columns)))
    rows = relation.project(casts).fetchall()
    return [["NULL" if cell is None else cell or "(empty)" for cell in row] for row in rows]


def same_cell(wanted: str, got: str) -> bool:
    """Whether a cell is the expected one; numbers may differ in how they are written."""
    if wanted.startswith("<!REGEX>:"):
        return not matches(wanted.replace("<!", "<", 1), got)
    if matches(wanted, got):
        return True
    if {wanted, got} in ({"1", "true"}, {"0", "false"}):
        return True
    try:
        return math.isclose(float(wanted), float(got), rel_tol=1e-2)
    except ValueError:
        return False


def same_rows(wanted: list[str], rows: list[list[str]], sort: str) -> bool:
    """Whether a result is the expected one, in any of the ways to write it."""
    cells = [cell for row in rows for cell in row]
    hashed = re.fullmatch(r"(\d+) values hashing to (\w+)", wanted[0]) if len(wanted) == 1 else None
    if hashed:
        digest = hashlib.md5("".join(f"{cell}\n" for cell in cells).encode(), usedforsecurity=False)
        return len(cells) == int(hashed[1]) and digest.hexdigest() == hashed[2]
    width = len(rows[0]) if rows else 1
    expected = [line.split("\t") for line in wanted]
    if width > 1 and any(len(row) != width for row in expected) and len(wanted) == len(cells):
        expected = [wanted[at : at + width] for at in range(0, len(wanted), width)]
    elif width == 1:
        expected = [[line] for line in wanted]
    if sort == "rowsort":
        expected = sorted(expected)
    return len(expected) == len(rows) and all(
        len(want) == len(row) and all(map(same_cell, want, row))
        for want, row in zip(expected, rows, strict=True)
    )


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


def judge(path: Path, checkout: Path, on: str) -> str:
    """As run_one, in a process of its own."""
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


def main() -> int:
    """Runs the tests and compares with the lists; the number of surprises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--on", choices=["nvme", "file"], default="nvme")
    parser.add_argument("--one", type=Path)
    parser.add_argument("--update", action="store_true")
    asked = parser.parse_intermixed_args()
    checkout = asked.checkout.resolve()
    if asked.one:
        print(run_one(asked.one, checkout, asked.on))
        return 0
    root = checkout / "test/sql/storage"
    files = sorted(path for path in root.rglob("*.test"))
    names = {str(path.relative_to(root)): path for path in files}
    chosen = [name for name in names if any(fnmatch.fnmatch(name, it) for it in asked.patterns)]
    list_file = LISTS / "storage-passes.txt"
    passes = set(list_file.read_text().split()) if list_file.exists() else set()
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        verdicts = threads.map(lambda name: judge(names[name], checkout, asked.on), chosen)
        found = dict(zip(chosen, verdicts, strict=True))
    surprises = 0
    for name, verdict in found.items():
        known = next((why for it, why in cannot() if fnmatch.fnmatch(name, it)), None)
        is_surprise = verdict != "ok" and (name in passes or known is None)
        surprises += is_surprise
        if is_surprise:
            print(f"{name}: {verdict}")
    good = {name for name, verdict in found.items() if verdict == "ok"}
    if asked.update:
        list_file.write_text("".join(f"{name}\n" for name in sorted(passes | good)))
    seconds = time.monotonic() - begin
    print(f"{len(good)} of {len(found)} pass, {surprises} surprises, {seconds:.0f} s")
    return surprises


if __name__ == "__main__":
    sys.exit(min(main(), 1))
