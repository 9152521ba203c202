"""Tests that want a package which PyPI does not have for the DuckDB that runs.

`without-packages.tsv` lists them. A listed test counts as not run where its package is missing. A
test that misses a package and is not listed fails, and so does a row of which no test misses one.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from harness import PackageMissingError

LIST = Path(__file__).with_name("without-packages.tsv")


def listed(text: str) -> dict[str, str]:
    """Reasons by `FILE::FUNCTION`, or by `FILE` where all of its tests want a package."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("\t") for line in lines)


def row_of(nodeid: str, rows: dict[str, str]) -> str | None:
    """The row of a test, for all of its parameters."""
    test = nodeid.split("/")[-1].split("[")[0]
    return next((row for row in (test, test.split("::")[0]) if row in rows), None)


class Packages:
    """A plugin of pytest."""

    def __init__(self, rows: dict[str, str]) -> None:
        self.rows = rows
        self.used: set[str] = set()
        self.needless: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A listed test that misses its package was not run."""
        report = yield
        row = row_of(item.nodeid, self.rows)
        if row is None:
            return report
        if call.excinfo and call.excinfo.errisinstance(PackageMissingError):
            self.used.add(row)
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"{call.excinfo.value}: {self.rows[row]}")
        elif call.when == "call":
            self.needless.add(row)
        return report

    def rows_too_many(self) -> set[str]:
        """Rows of tests that all ran, where other tests miss packages: DuckDB 1.5 has them all."""
        return self.needless - self.used if self.used else set()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails for such rows."""
        if self.rows_too_many():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names them."""
        for row in sorted(self.rows_too_many()):
            terminalreporter.write_line(
                f"{LIST.name}: {row} misses no package: remove it", red=True
            )
