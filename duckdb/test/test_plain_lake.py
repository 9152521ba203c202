"""What a table format asks of its files, in plain SQL: lists, deletes, compaction, clean-up.

DuckLake does so on DuckDB 1.5 (`test_ducklake.py`); this runs on every DuckDB.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import duckdb
import pytest
from harness import BUILD, S3_KEY, Fake, connect, scanner

ROWS = 5000


@dataclass
class Lake:
    """A table: its files live in the store, its snapshots here."""

    con: duckdb.DuckDBPyConnection
    store: Fake
    root: str
    snapshots: list[tuple[list[str], list[str]]] = field(default_factory=lambda: [([], [])])
    """Of each version the files of rows and those of deletes."""
    written: int = 0

    def write(self, rows: str) -> str:
        """A file that nobody knows yet; its URL."""
        self.written += 1
        url = f"{self.root}/{self.written:03}.parquet"
        self.con.execute(f"COPY ({rows}) TO '{url}'")
        return url

    def insert(self, rows: str) -> None:
        """A version with one file more."""
        files, deletes = self.snapshots[-1]
        self.snapshots.append(([*files, self.write(rows)], deletes))

    def delete(self, where: str) -> None:
        """A version with a file of the positions that are no rows any more."""
        files, deletes = self.snapshots[-1]
        found = f"SELECT filename AS file, file_row_number AS pos FROM {scan(files)} WHERE {where}"
        self.snapshots.append((files, [*deletes, self.write(found)]))

    def compact(self) -> None:
        """A version in which one file has all rows."""
        self.snapshots.append(([self.write(f"SELECT i, v FROM {self.table()}")], []))

    def table(self, version: int = -1) -> str:
        """What is read for a version."""
        files, deletes = self.snapshots[version]
        if not deletes:
            return scan(files)
        gone = f"read_parquet({deletes})"
        return (
            f"(SELECT a.i, a.v FROM {scan(files)} a ANTI JOIN {gone} d "
            "ON a.filename = d.file AND a.file_row_number = d.pos)"
        )

    def total(self, version: int = -1) -> tuple[int, ...]:
        """Rows, and sums of both columns."""
        query = f"SELECT count(*), sum(i), sum(v) FROM {self.table(version)}"
        row = self.con.execute(query).fetchone()
        assert row
        return row

    def expire(self) -> None:
        """Removes what only older versions name."""
        files, deletes = self.snapshots[-1]
        old = {name for snapshot in self.snapshots for names in snapshot for name in names}
        options = {
            "endpoint": self.store.address,
            "key_id": S3_KEY,
            "secret": S3_KEY,
            "region": "us-east-1",
            "url_style": "path",
            "use_ssl": "false",
        }
        if self.store.kind == "azure":
            options = {"connection_string": self.store.connection_string}
        told = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        gone = sorted(old - {*files, *deletes})
        done = subprocess.run(
            [BUILD / "penstock", "rm", *told, *gone], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def scan(files: list[str]) -> str:
    """Reads such files, with the place of each row."""
    return f"read_parquet({files}, filename = true, file_row_number = true)"


@pytest.fixture
def lake(
    con: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> Iterator[Lake]:
    """A table of four files."""
    # Others write and remove here, under names that have been read.
    con.execute("SET GLOBAL penstock_cache_validation = 'query'")
    made = Lake(con, store, store.url(f"plain/{request.node.originalname}"))
    for number in range(4):
        made.insert(f"SELECT i, i % 7 AS v FROM range({number * ROWS}, {(number + 1) * ROWS}) t(i)")
    store.reset()
    yield made


def right(where: str = "true") -> tuple[int, ...]:
    """What such rows come to."""
    query = f"SELECT count(*), sum(i), sum(i % 7) FROM range({4 * ROWS}) t(i) WHERE {where}"
    row = duckdb.connect().execute(query).fetchone()
    assert row
    return row


def test_rows_are_deleted_by_position_and_older_lists_still_have_them(lake: Lake) -> None:
    lake.delete("i % 10 = 3")
    lake.delete("v = 2 AND i < 9000")
    assert lake.total() == right("i % 10 != 3 AND NOT (i % 7 = 2 AND i < 9000)")
    assert lake.total(-2) == right("i % 10 != 3")
    assert lake.total(-3) == right()
    assert lake.total(2) == right(f"i < {2 * ROWS}")


def test_a_compacted_table_has_the_same_rows_and_outlives_its_files(lake: Lake) -> None:
    lake.delete("i % 3 = 0")
    lake.compact()
    expected = right("i % 3 != 0")
    assert lake.total() == lake.total(-2) == expected
    lake.expire()
    assert lake.total() == expected
    # Also to one that has read what is gone, and has it in its cache.
    with pytest.raises(duckdb.Error, match=r"001\.parquet"):
        lake.total(-2)
    left = lake.con.execute(f"SELECT file FROM glob('{lake.root}/*')").fetchall()
    assert left == [(lake.snapshots[-1][0][0],)]


def test_another_connection_sees_a_file_that_was_written_anew(lake: Lake) -> None:
    lake.delete("i < 10")
    assert lake.total() == right("i >= 10")
    url = lake.snapshots[-1][1][0]
    other = connect()
    other.execute(f"CREATE SECRET s ({lake.store.secret})")
    file = lake.snapshots[-1][0][0]
    other.execute(f"COPY (SELECT '{file}' AS file, i AS pos FROM range(20) t(i)) TO '{url}'")
    assert lake.total() == right("i >= 20")
    other.close()


def test_opening_the_files_of_a_list_again_moves_none_of_their_bytes(lake: Lake) -> None:
    reader = Lake(scanner(lake.store), lake.store, lake.root, lake.snapshots)
    assert reader.total() == right()
    first = lake.store.requests()
    assert sum(it["bytes_out"] for it in first if it["method"] == "GET") > 0
    for _ in range(2):
        lake.store.reset()
        assert reader.total() == right()
        again = lake.store.requests()
        assert {it["method"] for it in again} <= {"HEAD"}, again
        assert len(again) <= 4, "each file is asked for once"
    reader.con.close()


def test_overwrite_removes_what_a_table_had(lake: Lake) -> None:
    target = f"{lake.root}/overwritten"
    copy = "COPY (SELECT i, i % {} AS p FROM range({}) t(i)) TO '{}' (FORMAT parquet, {})"
    lake.con.execute(copy.format(9, 900, target, "PARTITION_BY p"))
    read = (
        f"SELECT count(*), count(DISTINCT p), count(DISTINCT filename) FROM '{target}/*/*.parquet'"
    )
    assert lake.con.execute(read).fetchone() == (900, 9, 9)
    lake.con.execute(copy.format(2, 50, target, "PARTITION_BY p, OVERWRITE"))
    assert lake.con.execute(read).fetchone() == (50, 2, 2)
    lake.con.execute(copy.format(3, 60, target, "PARTITION_BY p, APPEND"))
    assert lake.con.execute(read).fetchone() == (110, 3, 5)
