"""TPC-H's customer table, made by SQL: the same columns and types, values of the same shape.

Decides the values: a function of the row's number, so every run has the same table. It is not
dbgen's; its comments are random words and its addresses random letters, which compress alike.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

ROWS_PER_SCALE = 150_000
WORDS = (
    "furiously carefully quickly blithely slyly regular express special pending final ironic even "
    "bold silent unusual deposits requests accounts packages instructions theodolites foxes ideas "
    "dependencies pinto beans asymptotes platelets sleep haggle nag wake cajole integrate detect "
    "boost among across above against along the are use after"
)


def rows(scale: int) -> int:
    """How many there are at a scale factor."""
    return ROWS_PER_SCALE * scale


def select(scale: int) -> str:
    """The query whose result is the table."""
    words = ", ".join(f"'{word}'" for word in WORDS.split())
    count = len(WORDS.split())
    picked = " || ' ' || ".join(
        f"words[1 + (hash(key, {place}) % {count})::INTEGER]" for place in range(11)
    )
    return f"""
        SELECT key AS c_custkey,
               'Customer#' || lpad(key::VARCHAR, 9, '0') AS c_name,
               left(md5(key::VARCHAR) || md5((key + 7)::VARCHAR),
                    (10 + hash(key, 'a') % 31)::INTEGER) AS c_address,
               (hash(key, 'n') % 25)::INTEGER AS c_nationkey,
               printf('%d-%d-%d-%d', 10 + hash(key, 'n') % 25, 100 + hash(key, 'p') % 900,
                      100 + hash(key, 'q') % 900, 1000 + hash(key, 'r') % 9000) AS c_phone,
               ((hash(key, 'b') % 1099999)::BIGINT / 100 - 999.99)::DECIMAL(15, 2) AS c_acctbal,
               ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY']
                   [1 + (hash(key, 's') % 5)::INTEGER] AS c_mktsegment,
               {picked} AS c_comment
        FROM (SELECT range + 1 AS key, [{words}] AS words FROM range({rows(scale)}))"""


def make(path: Path, scale: int) -> None:
    """A database that holds it."""
    with duckdb.connect(str(path)) as con:
        con.execute(f"CREATE TABLE customer AS {select(scale)}")
        con.execute("CHECKPOINT")
