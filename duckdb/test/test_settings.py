"""Settings from the environment: the start value of SET, and of the engine itself."""

from __future__ import annotations

import duckdb
import pytest
from harness import connect


def value(con: duckdb.DuckDBPyConnection, name: str) -> str:
    row = con.execute("SELECT value FROM penstock_settings() WHERE name = ?", [name]).fetchone()
    assert row
    return str(row[0])


def test_the_environment_gives_the_start_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PART_SIZE_BYTES", "32MiB")
    con = connect()
    assert value(con, "penstock_part_size_bytes") == "32MiB"
    con.execute("SET penstock_part_size_bytes = '16MiB'")
    assert value(con, "penstock_part_size_bytes") == "16MiB"
    con.execute("RESET penstock_part_size_bytes")
    assert value(con, "penstock_part_size_bytes") == "32MiB"


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_IO_THREADS", "none")
    with pytest.raises(duckdb.InvalidInputException, match=r"PENSTOCK_IO_THREADS.*whole number"):
        connect()


def test_a_wrong_value_names_the_setting() -> None:
    con = connect()
    with pytest.raises(
        duckdb.InvalidInputException, match=r"penstock_part_size_bytes.*`abc` is not a byte size"
    ):
        con.execute("SET penstock_part_size_bytes = 'abc'")
