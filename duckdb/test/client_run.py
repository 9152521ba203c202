"""One test file of DuckDB's httpfs or azure, with Penstock in their place, or with themselves."""

from __future__ import annotations

import datetime
import os
import re
from decimal import Decimal
from pathlib import Path

import duckdb
from harness import IS_DUCKDB_2, PackageMissingError, connect, load_penstock, load_pypi
from sqllogic import Record, TestFailedError, shown
from storage_run import GIVEN, SkippedError, StorageRun

STOOD_IN_FOR = {"httpfs", "azure"}
FROM_PYPI = {"tpch", "tpcds"}
_SESSION = """
SELECT name, value FROM duckdb_settings()
WHERE scope = 'LOCAL' AND regexp_matches(name, '^(s3_|azure_|http|hf_)')
"""


_VERIFICATION = re.compile(r"pragma enable_verification", re.IGNORECASE)


class EndsHereError(SkippedError):
    """The test asks for what is not here, and ends."""


class ClientRun(StorageRun):
    """A file that wants servers and variables of the environment, and a database as it is."""

    def __init__(self, path: Path, here: Path, directory: Path, *, theirs: bool, ca: Path) -> None:
        super().__init__(path, here, directory, None)
        self.theirs, self.ca = theirs, ca
        self.is_loaded, self.ran = False, 0
        self.writer = duckdb.connect()

    def run(self) -> None:
        """Runs the file to its first failure; it is skipped where nothing of it is run."""
        try:
            super().run()
        except EndsHereError:
            # As in DuckDB's runner: what ran before it counts.
            if self.ran == 0:
                raise
        if self.ran == 0:
            raise SkippedError("its authors have switched all of it off (mode skip)")

    def one(self, record: Record, variables: dict[str, str]) -> None:
        """Runs one record."""
        kind, *rest = [self.fill(word, variables) for word in record.words]
        if kind == "require-env":
            if os.environ.get(rest[0]) is None or rest[1:] not in ([], [os.environ[rest[0]]]):
                raise EndsHereError(f"asks for the variable {' '.join(rest)}")
        elif kind == "set" and rest[0] in ("ignore_error_messages", "always_fail_error_messages"):
            pass  # Which errors DuckDB's runner forgives; this one forgives none.
        else:
            self.ran += kind in ("statement", "query") and not _VERIFICATION.match(record.sql)
            super().one(record, variables)

    def require(self, words: list[str]) -> None:
        """Loads Penstock for httpfs and azure, and others that PyPI has."""
        name = words[0]
        if name in STOOD_IN_FOR:
            self.is_loaded = True
            if self.main is not None:
                self.load_client(self.main)
        elif name in FROM_PYPI:
            try:
                load_pypi(self.connection(None), name)
            except (PackageMissingError, ModuleNotFoundError) as error:
                raise EndsHereError(f"asks for {name}, which PyPI has not for it") from error
            self.extensions.append(name)
        elif name not in GIVEN:
            super().require(words)

    def open(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with what the test requires, and without a database."""
        con = connect(load=False, allow_unredacted_secrets="true")
        if self.is_loaded:
            self.load_client(con)
        for name in self.extensions:
            load_pypi(con, name)
        return con

    def load_client(self, con: duckdb.DuckDBPyConnection) -> None:
        """Loads what is tested."""
        if self.theirs:
            for name in sorted(STOOD_IN_FOR):
                load_pypi(con, name)
            con.execute(f"SET GLOBAL ca_cert_file = '{self.ca}'")
        else:
            load_penstock(con)

    def changed_settings(self) -> dict[str, str]:
        """What the test has set for its session: it stays so over a restart."""
        if self.main is None:
            return self.settings
        first = dict(self.open().execute(_SESSION).fetchall())
        now = self.main.execute(_SESSION).fetchall()
        return {name: value for name, value in now if value != first.get(name)}

    def execute(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Runs a statement to its end; Python may lack what it wants for a type of DuckDB's."""
        result = con.execute(sql)
        try:
            result.fetchall()
        except duckdb.InvalidInputException as error:
            if "Required module" not in str(error):
                raise

    def is_expected(self, wanted: str, got: str) -> bool:
        """As for any test; DuckDB 2.0 puts names into other quotes than these older tests."""
        if IS_DUCKDB_2:
            wanted, got = wanted.replace('"', "'"), got.replace('"', "'")
        return super().is_expected(wanted, got)

    def rows(self, con: duckdb.DuckDBPyConnection, sql: str) -> list[list[str]]:
        """The result of one execution: requests are counted, so a statement is bound once."""
        cells = con.execute(sql).fetchall()
        return [[self.text(cell) for cell in row] for row in cells]

    def text(self, cell: object) -> str:
        """A value as DuckDB writes it."""
        match cell:
            case None | str() | bool():
                return shown(cell)
            case datetime.datetime():
                pass
            case int() | float() | Decimal() | datetime.date():
                return str(cell)
        (written,) = self.writer.execute("SELECT $1::VARCHAR", [cell]).fetchone() or (None,)
        return shown(written)

    def fill(self, text: str, variables: dict[str, str]) -> str:
        """Puts in what stands in braces, of the environment too."""
        return super().fill(text, {**os.environ, **variables})


def verdict_of(run: ClientRun) -> str:
    """The verdict on one file: ok, skipped, or what failed."""
    try:
        run.run()
    except SkippedError as skipped:
        return f"skipped: {skipped}"
    except TestFailedError as failure:
        return f"failed: {failure}"
    return "ok"
