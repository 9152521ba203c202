"""Tests that do not hold on the DuckDB that runs, or cannot be run on it, and why.

`not-here.tsv` lists them. A row's second column is `package` where the test wants a package that
PyPI does not have for every version, `1` where it holds on DuckDB 1 only, or `sometimes` where on
DuckDB 2 it may fail. Such a test counts as not run where it fails for that reason. A row of which
no test fails is an error (but for `sometimes`): the list is never longer than needed. So is a test
that misses a package and is not listed.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from harness import IS_DUCKDB_2, PackageMissingError

LIST = Path(__file__).with_name("not-here.tsv")

Rows = dict[str, tuple[str, str]]


def listed(text: str) -> Rows:
    """Need and reason by `FILE::FUNCTION`, or by `FILE` for all of its tests."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {test: (need, reason) for test, need, reason in (line.split("\t") for line in lines)}


def row_of(nodeid: str, rows: Rows) -> str | None:
    """The row of a test, for all of its parameters."""
    test = nodeid.split("[")[0].split("/")[-1]
    return next((row for row in (test, test.split("::")[0]) if row in rows), None)


def is_why(need: str, call: pytest.CallInfo[None]) -> bool:
    """Whether a test failed for the reason of its row."""
    if call.excinfo is None:
        return False
    # Another process shows the error in its output.
    is_missing = PackageMissingError.__name__ in f"{call.excinfo.typename} {call.excinfo.value}"
    return is_missing if need == "package" else IS_DUCKDB_2


class NotHere:
    """A plugin of pytest."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.used: set[str] = set()
        self.held: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A listed test that fails for its reason was not run."""
        report = yield
        row = row_of(item.nodeid, self.rows)
        if row is None:
            return report
        need, reason = self.rows[row]
        if is_why(need, call):
            self.used.add(row)
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, reason)
        elif call.when == "call" and need != "sometimes":
            self.held.add(row)
        return report

    def rows_too_many(self) -> set[str]:
        """Rows of which no test failed, on the versions that they are for."""
        return {row for row in self.held - self.used if IS_DUCKDB_2}

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Fails for such rows, where all of their tests ran."""
        is_whole = not session.config.getoption("keyword") and session.testsfailed == 0
        if is_whole and self.rows_too_many():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names them."""
        for row in sorted(self.rows_too_many()):
            terminalreporter.write_line(f"{LIST.name}: {row} holds here: remove it", red=True)
