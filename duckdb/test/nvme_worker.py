"""A DuckDB process that is killed in the middle of its work, and what must be there afterwards.

Two threads write, each its own table by rules that make the contents a function of the number of
its committed transactions. After each commit a thread says so; a checkpoint comes in between now
and then, so that transactions are written while one runs.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

import duckdb
from harness import connect
from nvme import url, value

TABLES = ("a", "b")
ROWS = 7
KEPT = 40


def rows(table: str, first: int, end: int) -> str:
    """SQL of rows: mostly short strings, and every fiftieth in blocks of its own."""
    length = "CASE WHEN i % 50 = 0 THEN 5000 ELSE i % 300 END"
    return f"SELECT i, repeat('{table}' || i, {length}) AS text FROM range({first}, {end}) r(i)"


# What a table holds, so that two can be compared.
SUMS = "count(*), coalesce(sum(i), 0), coalesce(bit_xor(hash(i, text)), 0)"
# What was written, by table, first and last number: of so few that each is worked out once.
_WRITTEN: dict[tuple[str, int, int], tuple[object, ...]] = {}


def holds(con: duckdb.DuckDBPyConnection, db: str, table: str, first: int, end: int) -> bool:
    """Whether a table holds exactly those rows."""
    if (table, first, end) not in _WRITTEN:
        _WRITTEN[table, first, end] = sums(con, f"({rows(table, first, end)})")
    return sums(con, f"{db}.{table}") == _WRITTEN[table, first, end]


def sums(con: duckdb.DuckDBPyConnection, source: str) -> tuple[object, ...]:
    """Of all rows of a table or a query."""
    row = con.execute(f"SELECT {SUMS} FROM {source}").fetchone()
    assert row is not None
    return tuple(row)


def transact(con: duckdb.DuckDBPyConnection, table: str, number: int) -> None:
    """The transaction of this number: new rows, old ones away, and the count of transactions."""
    first = number * ROWS
    con.execute("BEGIN")
    con.execute(f"INSERT INTO d.{table} {rows(table, first, first + ROWS)}")
    con.execute(f"DELETE FROM d.{table} WHERE i < {(number + 1 - KEPT) * ROWS}")
    con.execute(f"UPDATE d.done SET n = {number + 1} WHERE name = '{table}'")
    con.execute("COMMIT")


def attach(volume: Path, **parameters: str) -> duckdb.DuckDBPyConnection:
    """DuckDB with the database, which replays its log."""
    con = connect()
    # Each table has one row group, so a second thread would only have the first one spin.
    con.execute("SET threads = 1")
    con.execute("SET checkpoint_threshold = '64KB'")
    con.execute(f"ATTACH '{url(volume, 'd', **parameters)}' AS d")
    return con


def prepare(con: duckdb.DuckDBPyConnection) -> None:
    """The tables, empty."""
    con.execute("CREATE TABLE d.done (name VARCHAR, n BIGINT)")
    for table in TABLES:
        con.execute(f"CREATE TABLE d.{table} (i BIGINT PRIMARY KEY, text VARCHAR)")
        con.execute(f"INSERT INTO d.done VALUES ('{table}', 0)")


def verify(con: duckdb.DuckDBPyConnection, told: dict[str, int]) -> dict[str, int]:
    """Transactions by table; at most one more than was told, and whole."""
    found = {}
    for table in TABLES:
        count = value(con, f"SELECT n FROM d.done WHERE name = '{table}'")
        assert isinstance(count, int)
        assert told[table] <= count <= told[table] + 1, (table, told[table], count)
        first = max(0, count - KEPT) * ROWS
        assert holds(con, "d", table, first, count * ROWS), (table, count)
        verify_index(con, table, count)
        found[table] = count
    return found


def append(con: duckdb.DuckDBPyConnection, number: int, db: str) -> None:
    """The transaction of this number on a table that only grows.

    Who only adds rows commits while a checkpoint runs, too.
    """
    first = number * ROWS
    con.execute(f"INSERT INTO {db}.grows {rows('grows', first, first + ROWS)}")


def verify_appended(con: duckdb.DuckDBPyConnection, told: int, db: str) -> int:
    """Transactions on that table; at most one more than was told, and whole."""
    count = value(con, f"SELECT count(*) FROM {db}.grows")
    assert isinstance(count, int)
    assert count % ROWS == 0 and told <= count // ROWS <= told + 1, (told, count)
    assert holds(con, db, "grows", 0, count), count
    return count // ROWS


def verify_index(con: duckdb.DuckDBPyConnection, table: str, transactions: int) -> None:
    """The index of the keys knows the last row, and none that was deleted."""
    last, deleted = transactions * ROWS - 1, (transactions - KEPT) * ROWS - 1
    for key, there in [(last, True), (deleted, False)]:
        if key >= 0:
            assert value(con, f"SELECT count(*) FROM d.{table} WHERE i = {key}") == there, key
            con.execute("BEGIN")
            try:
                con.execute(f"INSERT INTO d.{table} VALUES ({key}, '')")
            except duckdb.ConstraintException:
                assert there, key
            else:
                assert not there, key
            con.execute("ROLLBACK")


def work(con: duckdb.DuckDBPyConnection, done: dict[str, int]) -> None:
    """Transactions without end; each commit is told as a line of one write."""
    committed = threading.Event()

    def run(table: str) -> None:
        mine = con.cursor()
        number = done[table]
        while True:
            transact(mine, table, number)
            number += 1
            committed.set()
            os.write(1, f"{table} {number}\n".encode())

    for table in TABLES:
        threading.Thread(target=run, args=(table,), daemon=True).start()
    checkpoints = con.cursor()
    while True:
        # Without new rows there is nothing to do, and trying costs the processor that others need.
        committed.wait()
        committed.clear()
        # Refused while another transaction writes.
        with suppress(duckdb.TransactionException):
            checkpoints.execute("CHECKPOINT d")


def serve(volume: Path, told: dict[str, int], **parameters: str) -> None:
    """The whole life of the process: looks at what is there, says so, and goes on writing."""
    con = attach(volume, **parameters)
    found = verify(con, told)
    lines = [f"{table} {found[table]}\n" for table in TABLES]
    os.write(1, "".join([*lines, "ready 0\n"]).encode())
    work(con, found)


def main(volume: Path, **parameters: str) -> None:
    """Forks a process for each line of stdin, which tells how much was committed in each table.

    DuckDB is loaded once, and has no threads yet when it is forked.
    """
    for line in sys.stdin:
        told = dict(zip(TABLES, map(int, line.split()), strict=True))
        child = os.fork()
        if child == 0:
            os.write(1, f"pid {os.getpid()}\n".encode())
            try:
                serve(volume, told, **parameters)
            except BaseException:
                os.write(1, f"failed {traceback.format_exc()!r}\n".encode())
            os._exit(1)
        os.waitpid(child, 0)
        os.write(1, b"ended 0\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), **dict(pair.split("=") for pair in sys.argv[2:]))
