"""Results as DuckDB's own storage tests write them, and whether one is the expected one."""

from __future__ import annotations

import hashlib
import math
import re

import duckdb
from sqllogic import matches


def texts(con: duckdb.DuckDBPyConnection, sql: str) -> list[list[str]]:
    """A result as DuckDB writes it."""
    if re.match(r"\s*(INSERT|UPDATE|DELETE|MERGE|COPY)\b", sql, re.IGNORECASE):
        return [[str(cell) for cell in row] for row in con.execute(sql).fetchall()]
    relation = con.query(sql)
    if relation is None:
        return []
    casts = ", ".join(f"#{index + 1}::VARCHAR" for index in range(len(relation.columns)))
    rows = relation.project(casts).fetchall()
    return [[shown(cell) for cell in row] for row in rows]


def shown(cell: str | None) -> str:
    """A cell that DuckDB has made a text."""
    return "NULL" if cell is None else cell.replace("\0", "\\0") or "(empty)"


def same_cell(wanted: str, got: str) -> bool:
    """Whether a cell is the expected one; numbers may differ in how they are written."""
    if wanted.startswith("<!REGEX>:"):
        return not matches(wanted.replace("<!", "<", 1), got)
    if matches(wanted, got):
        return True
    wanted, got = wanted.lower(), got.lower()
    if wanted == got or {wanted, got} in ({"1", "true"}, {"0", "false"}):
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
