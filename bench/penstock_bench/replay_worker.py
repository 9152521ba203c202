"""One replay: an embedded ClickHouse with the same wide table on each disk, and queries one by one.

A process of its own, because ClickHouse is embedded once. Reads a job (JSON) from standard input,
writes one JSON object. Decides what the table and the queries are, and in which order the disks
have their turns; compares nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock_bench.processes import cpu_s

COLUMNS = 120
"""Besides the key: whole numbers, fractions, words and texts in turn."""
PARTS = 4
BLOCK = 10
"""Queries of one disk before the next has its turn: a tenth of a second on the loopback. The pace
of a machine moves from one second to the next by more than what a gateway adds."""
SEED = 20231120
_TYPES = ("UInt32", "Float64", "LowCardinality(String)", "String")
_VALUES = (
    "toUInt32(sipHash64(number, {n}) % 1000000)",
    "sipHash64(number, {n}) / 1e18",
    "concat('w', toString(sipHash64(number, {n}) % 50))",
    "hex(sipHash64(number, {n}))",
)


class Answer(Protocol):
    """What a query gives."""

    def bytes(self) -> bytes:
        """As it is printed."""
        ...


class Session(Protocol):
    """As much of `chdb.session.Session` as is used here."""

    def query(self, query: str) -> Answer:
        """Asks; raises what ClickHouse says is wrong."""
        ...


def create(table: str, disk: str) -> str:
    """The table: every column in files of its own."""
    columns = ", ".join(f"c{n} {_TYPES[n % 4]}" for n in range(COLUMNS))
    return (
        f"CREATE TABLE {table} (id UInt64, day UInt16, {columns}) ENGINE = MergeTree ORDER BY id"
        f" SETTINGS min_bytes_for_wide_part = 0, {disk}"
    )


def insert(table: str, part: int, rows: int) -> str:
    """One part of it, the same on every run."""
    values = ", ".join(_VALUES[n % 4].format(n=n) for n in range(COLUMNS))
    return (
        f"INSERT INTO {table} SELECT number, number % 365, {values}"
        f" FROM numbers({part * rows}, {rows}) SETTINGS max_insert_block_size = {rows},"
        f" min_insert_block_size_rows = {rows}, max_insert_threads = 1"
    )


def queries(table: str, count: int, rows: int) -> list[str]:
    """What a production log looks like: few columns of many; lookups, ranges and scans."""
    chance = random.Random(SEED)  # noqa: S311 - the same on every run is what is wanted
    made = []
    for number in range(count):
        ints, fractions, words, texts = (
            [f"c{n}" for n in chance.sample(range(kind, COLUMNS, 4), 3)] for kind in range(4)
        )
        begin = chance.randrange(rows)
        where = f"id BETWEEN {begin} AND {begin + rows // 50}"
        made.append(
            (
                f"SELECT {words[0]}, count(), sum({ints[0]}), round(avg({fractions[0]}), 6)"
                f" FROM {table} GROUP BY 1 ORDER BY 1",
                f"SELECT count(), sum({ints[0]}), max({texts[0]}), min({texts[1]}) FROM {table}"
                f" WHERE {where}",
                f"SELECT id, {ints[0]}, {ints[1]}, {texts[0]}, {words[1]} FROM {table}"
                f" WHERE id = {begin}",
                f"SELECT day, uniqExact({words[2]}), max({ints[2]}) FROM {table}"
                f" WHERE {ints[1]} < 20000 GROUP BY day ORDER BY day LIMIT 20",
            )[number % 4]
        )
    return made


def turns(disks: int, count: int) -> Iterator[tuple[int, range]]:
    """Which disk is asked which of ``count`` queries next.

    All are asked the same ones before any goes on, each in each place of the order as often as in
    another, and behind whom it came in one round it comes before in the next.
    """
    for block, begin in enumerate(range(0, count, BLOCK)):
        order = [(block + place) % disks for place in range(disks)]
        for disk in reversed(order) if block // disks % 2 else order:
            yield disk, range(begin, min(begin + BLOCK, count))


class Table:
    """The table on one disk, and what its queries took. A failure ends this one, not the others."""

    def __init__(self, session: Session, name: str, disk: dict[str, Any]) -> None:
        self._session, self._name, self._disk = session, name, disk
        self._answers: list[bytes] = []
        self._times: list[float] = []
        self._load_s = 0.0
        self._cpu_s: defaultdict[str, float] = defaultdict(float)
        self._error: str | None = None

    def load(self, rows: int) -> None:
        """Makes it, with so many rows."""
        with self._counted("load"):
            begin = time.perf_counter()
            self._session.query(create(self._name, self._disk["disk"]))
            for part in range(PARTS):
                self._session.query(insert(self._name, part, rows // PARTS))
            self._load_s = time.perf_counter() - begin

    def ask(self, asked: Sequence[str]) -> None:
        """Some of the queries; none any more after one that failed."""
        with self._counted("queries"):
            for query in asked if self._error is None else ():
                begin = time.perf_counter()
                answer = self._session.query(query).bytes()
                self._times.append(time.perf_counter() - begin)
                self._answers.append(answer)

    def end(self) -> dict[str, Any]:
        """Removes it; what is told of it."""
        parts = 0
        if self._error is None:
            with self._counted("end"):
                active = f"active AND table = '{self._name}'"
                parts = int(
                    self._session.query(f"SELECT count() FROM system.parts WHERE {active}").bytes()
                )
                self._session.query(f"DROP TABLE {self._name} SYNC")
        if self._error is not None:
            return {"error": f"ClickHouse: {self._error[:300]}"}
        return {
            "load_s": self._load_s,
            "queries_s": self._times,
            "queries_cpu_s": self._cpu_s["queries"],
            "server_cpu_s": sum(self._cpu_s.values()),
            "answers": hashlib.sha256(b"".join(self._answers)).hexdigest(),
            "parts": parts,
        }

    @contextmanager
    def _counted(self, step: str) -> Iterator[None]:
        """Counts the server's processor time; keeps what fails inside."""
        try:
            before = cpu_s(self._disk["server"])
            yield
            self._cpu_s[step] += cpu_s(self._disk["server"]) - before
        except Exception as error:
            self._error = self._error or str(error)


def replay(session: Session, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Loads all disks of a job, then asks them in turn; what is told of each."""
    disks, rows, count = job["disks"], job["rows"], job["queries"]
    tables = [Table(session, f"wide{place}", disk) for place, disk in enumerate(disks)]
    asked = [queries(f"wide{place}", count, rows) for place in range(len(disks))]
    for table in tables:
        table.load(rows)
    for place, numbers in turns(len(disks), count):
        tables[place].ask([asked[place][number] for number in numbers])
    return [table.end() for table in tables]


def work(job: dict[str, Any]) -> list[dict[str, Any]]:
    """A job, by an embedded ClickHouse."""
    from chdb import session

    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as directory:
        # The package is not typed.
        open_session: Any = session.Session
        embedded: Session = open_session(f"{directory}/db")
        embedded.query("CREATE DATABASE replay")
        embedded.query("USE replay")
        return replay(embedded, job)


if __name__ == "__main__":
    json.dump(work(json.load(sys.stdin)), sys.stdout)
