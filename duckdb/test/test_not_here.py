"""The list of tests that do not hold on every DuckDB."""

from __future__ import annotations

from not_here import LIST, listed, row_of

ROWS = {"test_a.py": ("package", "why"), "test_b.py::test_one": ("1", "why")}


def test_a_test_is_found_by_its_file_or_its_function() -> None:
    assert row_of("duckdb/test/test_a.py::test_any[s3://x/y]", ROWS) == "test_a.py"
    assert row_of("test_b.py::test_one[FROM 's3://x/y.parquet']", ROWS) == "test_b.py::test_one"
    assert row_of("test_b.py::test_two", ROWS) is None


def test_every_row_has_a_known_need_a_reason_and_a_file() -> None:
    for row, (need, reason) in listed(LIST.read_text()).items():
        assert need in {"package", "1", "sometimes"} and reason, row
        assert (LIST.parent / row.split("::")[0]).is_file(), row
