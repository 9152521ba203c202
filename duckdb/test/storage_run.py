"""One file of DuckDB's own storage tests, on a volume or on plain files."""

from __future__ import annotations

import gzip
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import duckdb
from harness import connect, load_pypi
from nvme import penstock
from sqllogic import Record, TestFailedError, matches, parse
from storage_rows import same_rows, texts

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
    "icu",
    "64bit",
    "notwindows",
    "core_functions",
}
# Extensions that come from PyPI.
LOADED = {"httpfs", "tpch"}
# Settings that follow the main database.
PLACES = {"search_path", "schema"}
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
    "<all_types_columns>": [
        name for name, *_ in duckdb.sql("DESCRIBE FROM test_all_types()").fetchall()
    ],
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


class ContinueError(Exception):
    """The loop goes on with its next value."""


class StorageRun:
    """One test file."""

    def __init__(self, path: Path, checkout: Path, directory: Path, volume: Path | None) -> None:
        self.path, self.checkout, self.directory, self.volume = path, checkout, directory, volume
        self.variables: dict[str, str] = {}
        self.main: duckdb.DuckDBPyConnection | None = None
        self.others: dict[str, duckdb.DuckDBPyConnection] = {}
        self.database: tuple[str, str] | None = None
        self.labels: dict[str, list[list[str]]] = {}
        self.extensions: list[str] = []
        self.settings: dict[str, str] = {}
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
                self.require(rest)
            case "load":
                self.load(rest)
            case "restart":
                self.settings = self.changed_settings()
                self.close()
            case "reconnect":
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
            case "continue":
                raise ContinueError
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
            with suppress(ContinueError):
                self.records(record.body, one)

    def require(self, words: list[str]) -> None:
        """Loads an extension, or skips the test if it asks for what is not here."""
        name, size = words[0], int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        fits = {
            "vector_size": size <= VECTOR_SIZE,
            "exact_vector_size": size == VECTOR_SIZE,
            "block_size": size == BLOCK_SIZE,
        }
        if name in LOADED:
            self.extensions.append(name)
            self.close()
        elif not fits.get(name, name in GIVEN):
            raise SkippedError(f"asks for {' '.join(words)}")

    def changed_settings(self) -> dict[str, str]:
        """What the test has set: it stays so over a restart."""
        if self.main is None:
            return self.settings
        everything = "SELECT name, value FROM duckdb_settings()"
        first = dict(self.open().execute(everything).fetchall())
        # The test may have left a transaction that failed, and have statements verified.
        with suppress(duckdb.Error):
            self.main.rollback()
        try:
            self.main.execute("PRAGMA disable_verification")
            now = self.main.execute(everything).fetchall()
        except duckdb.Error:
            # The connection's database became invalid: one of the same instance knows as much, but
            # for what was set for the session.
            now = self.main.cursor().execute(everything).fetchall()
        return {it: value for it, value in now if value != first[it] and it not in PLACES}

    def open(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with what the test requires, and without a database."""
        con = connect(load=self.volume is not None)
        for name in self.extensions:
            load_pypi(con, name)
        return con

    def load(self, words: list[str]) -> None:
        """The main database from here on."""
        version = "storage_compatibility_version"
        self.settings = {
            name: it for name, it in self.changed_settings().items() if name == version
        }
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
            self.main = self.open()
            for name, value in self.settings.items():
                self.main.execute(f"SET {name} = '{value}'")
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
        if self.database:
            # Beside the test's database there is the one in memory that the process began with.
            sizes = f"(FROM pragma_database_size() WHERE database_name = '{self.database[1]}')"
            sql = sql.replace("pragma_database_size()", sizes)
        return sql

    def statement(self, record: Record, words: list[str], variables: dict[str, str]) -> None:
        """A statement that succeeds, fails, or may do either."""
        con = self.connection(words[1] if len(words) > 1 else variables.get(""))
        sql = self.sql(record, variables)
        try:
            self.execute(con, sql)
        except duckdb.Error as error:
            if words[0] == "ok":
                raise TestFailedError(f"line {record.line}: {sql}\n  failed: {error}") from error
            wanted = self.fill("\n".join(record.expected or []), variables).strip()
            if words[0] == "error" and not self.is_expected(wanted, str(error)):
                told = f"line {record.line}: {sql}\n  expected: {wanted}\n  got: {error}"
                raise TestFailedError(told) from error
        else:
            if words[0] == "error":
                raise TestFailedError(f"line {record.line}: {sql}\n  should have failed")

    def execute(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Runs a statement to its end."""
        con.execute(sql).fetchall()

    def is_expected(self, wanted: str, got: str) -> bool:
        """Whether the text of an error is the expected one, or holds it."""
        return matches(wanted, got) if wanted[:1] == "<" else wanted in got

    def rows(self, con: duckdb.DuckDBPyConnection, sql: str) -> list[list[str]]:
        """The result of a query, as DuckDB writes it."""
        return texts(con, sql)

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
            rows = self.rows(con, sql)
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
    """Whether all comparisons of loops' variables hold."""
    return all(comparison(part, variables) for part in text.split("&&"))


def comparison(text: str, variables: dict[str, str]) -> bool:
    """Whether one of them holds."""
    found = re.fullmatch(r"(\w+)(<>|<=|>=|=|<|>)(.*)", text)
    if not found:
        return False
    left, operator, right = variables.get(found[1], ""), found[2], found[3]
    if operator in ("=", "<>"):
        return (left == right) == (operator == "=")
    a, b = float(left), float(right)
    return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[operator]
