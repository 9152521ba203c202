"""Random statements on files of S3 and Azure answer as they do on files of this machine.

A failure names its case, which runs alone by `PENSTOCK_CASE=SEED/NUMBER`.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
from harness import Fake
from statements import CORPUS, TABLE, Case, Statement

STATEMENTS = 2000
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def cases() -> Iterator[tuple[str, Case]]:
    """The one that is asked for, or so many that they hold ``STATEMENTS``."""
    if asked := os.environ.get("PENSTOCK_CASE"):
        yield asked, Case(asked)
        return
    seed, count, number = random.randrange(1 << 32), 0, 0
    while count < STATEMENTS:
        name = f"{seed}/{number}"
        case = Case(name)
        yield name, case
        count, number = count + len(case.statements), number + 1


def answer(
    con: duckdb.DuckDBPyConnection, statement: Statement, kind: str, root: str, case: str
) -> list[str] | duckdb.Error:
    """The rows, without the place of their files; or the error."""
    places = {"{root}": f"{root}/{case}", "{corpus}": f"{root}/corpus", "{kind}": kind}
    sql = statement.sql
    for name, place in places.items():
        sql = sql.replace(name, place)
    try:
        rows = [repr(row).replace(root, "") for row in con.execute(sql).fetchall()]
    except duckdb.Error as error:
        return error
    rows = [UUID.sub("UUID", row) for row in rows]
    return rows if statement.is_ordered else sorted(rows)


def are_equal(one: list[str] | duckdb.Error, other: list[str] | duckdb.Error) -> bool:
    """Two errors need not have the same words."""
    if isinstance(one, duckdb.Error) or isinstance(other, duckdb.Error):
        return isinstance(one, duckdb.Error) and isinstance(other, duckdb.Error)
    return one == other


def prepare(con: duckdb.DuckDBPyConnection, roots: dict[str, str], directory: Path) -> None:
    """The table, and the corpus in each place."""
    con.execute(f"SET threads = 2; {TABLE}")
    made = directory / "made.duckdb"
    con.execute(f"ATTACH '{made}' AS made; CREATE TABLE made.t AS FROM t; DETACH made")
    (directory / "corpus").mkdir()
    for root in roots.values():
        for sql in CORPUS:
            con.execute(sql.format(corpus=f"{root}/corpus", made=made))


def test_answers_are_those_of_local_files(
    con: duckdb.DuckDBPyConnection, fakes: dict[str, Fake], tmp_path: Path
) -> None:
    roots = {"local": f"{tmp_path}", **{kind: it.url("differ") for kind, it in fakes.items()}}
    prepare(con, roots, tmp_path)
    tried, failed = 0, 0
    for name, case in cases():
        number = name.split("/")[1]
        (tmp_path / number).mkdir()
        for statement in case.statements:
            answers = {
                kind: answer(con, statement, kind, root, number) for kind, root in roots.items()
            }
            for kind in fakes:
                assert are_equal(answers["local"], answers[kind]), (
                    f"PENSTOCK_CASE={name} differs on {kind}: {statement.sql}: "
                    f"{answers[kind]!r:.500} in place of {answers['local']!r:.500}"
                )
            tried, failed = tried + 1, failed + isinstance(answers["local"], duckdb.Error)
    assert failed < tried * 0.4, f"{failed} of {tried} statements are unsound"
