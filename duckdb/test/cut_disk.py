"""DuckDB's work on a volume, and power cuts at any point of it; run with recorded_disk.c loaded.

usage: LD_PRELOAD=recorded_disk.so cut_disk.py LIBRARY VOLUME IO SEED CUTS

What DuckDB writes is recorded while two threads commit, checkpoints come between, tables are
loaded, indexed and dropped, logs replayed, and between two rounds the volume grows. A cut keeps
what was flushed before it; of what was written or trimmed since then it keeps all, nothing, some
commands, or some sectors. Of what is trimmed, some holds zeros from then on and some what nobody
wrote. After each cut the database opens and holds exactly the rows of the transactions that were
told to be committed, or of one more.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import nvme_worker as worker
from harness import connect
from nvme import BINARY, url, value

SECTOR_BYTES = 512
# What a trim leaves: a device gives the old bytes (as if the trim were lost), zeros, or others.
LEFT_BY_TRIMS = (b"\x00", b"\xdb")
# Transactions of each table in a round, and rounds: a round begins with the replay of a log.
TRANSACTIONS = 12
ROUNDS = 3
# Cuts that one DuckDB looks at: loading it takes longer than opening a database.
CUTS_OF_DUCKDB = 50
LOADED_ROWS = 30_000
# The volume grows after this round, by as many bytes.
GROWS_AFTER = 1
GROWN_BYTES = 8 << 20


@dataclass(frozen=True)
class Write:
    """Bytes that were written."""

    offset: int
    bytes: bytes

    def put(self, image: bytearray) -> None:
        """Has it reach the disk."""
        image[self.offset : self.offset + len(self.bytes)] = self.bytes

    def sectors(self) -> Iterator[Write]:
        """What no power cut divides."""
        for at in range(0, len(self.bytes), SECTOR_BYTES):
            yield Write(self.offset + at, self.bytes[at : at + SECTOR_BYTES])


class Trim(Write):
    """Blocks that were trimmed, and what they hold since."""


@dataclass(frozen=True)
class Flush:
    """What came before the event `until` is durable."""

    until: int


@dataclass(frozen=True)
class Mark:
    """A table had so many transactions committed."""

    table: int
    count: int


Event = Write | Flush | Mark


def parse(record: bytes) -> Iterator[Event]:
    """The events of a record (recorded_disk.c)."""
    at = trims = 0
    while at < len(record):
        kind, first, second = (
            int.from_bytes(record[at + 8 * number : at + 8 * number + 8], sys.byteorder)
            for number in range(3)
        )
        at += 24
        match chr(kind):
            case "W":
                yield Write(first, record[at : at + second])
                at += second
            case "T":
                yield Trim(first, LEFT_BY_TRIMS[trims % len(LEFT_BY_TRIMS)] * second)
                trims += 1
            case "F":
                yield Flush(first)
            case "M":
                yield Mark(first, second)


def load(con: duckdb.DuckDBPyConnection, number: int) -> None:
    """A table that is written past the log, indexed, and the one before it dropped."""
    con.execute(
        f"CREATE TABLE d.loaded_{number} AS SELECT i, hash(i) AS h FROM range({LOADED_ROWS}) r(i)"
    )
    con.execute(f"CREATE INDEX by_hash_{number} ON d.loaded_{number} (h)")
    if number:
        con.execute(f"DROP TABLE d.loaded_{number - 1}")


def work(volume: Path, io: str, recorder: Recorder) -> None:
    """Rounds of transactions of two threads; each commit is marked."""
    done = dict.fromkeys(worker.TABLES, 0)
    for number in range(ROUNDS):
        with connect() as con:
            con.execute("SET threads = 2; SET checkpoint_threshold = '64KB'")
            con.execute("PRAGMA disable_checkpoint_on_shutdown")
            con.execute(f"ATTACH '{url(volume, 'd', io=io)}' AS d")

            def run(table: str, con: duckdb.DuckDBPyConnection = con) -> None:
                mine = con.cursor()
                for _ in range(TRANSACTIONS):
                    worker.transact(mine, table, done[table])
                    done[table] += 1
                    recorder.library.recorded_disk_mark(worker.TABLES.index(table), done[table])

            threads = [threading.Thread(target=run, args=(table,)) for table in worker.TABLES]
            for thread in threads:
                thread.start()
            checkpoints = con.cursor()
            load(checkpoints, number)
            while any(thread.is_alive() for thread in threads):
                with suppress(duckdb.TransactionException):
                    checkpoints.execute("CHECKPOINT d")
            con.execute("DETACH d")
        if number == GROWS_AFTER:
            recorder.grow(volume)
    assert all(count == ROUNDS * TRANSACTIONS for count in done.values()), done
    with connect() as con:
        sql = "SELECT value FROM penstock_stats() WHERE name = 'device_bytes_in_place'"
        assert value(con, f"{sql} AND device IS NULL") == 0, "there is room for blocks to move"


def verify(con: duckdb.DuckDBPyConnection, volume: Path, told: dict[str, int]) -> None:
    """What must be there, and that work can go on."""
    con.execute(f"ATTACH '{url(volume, 'd', io='file')}' AS d")
    found = worker.verify(con, told)
    names = con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'loaded_%'"
    ).fetchall()
    assert len(names) <= 2, names
    for (name,) in names:
        sql = f"SELECT count(*) FROM d.{name} WHERE h = hash(i)"
        assert value(con, sql) == LOADED_ROWS, name
    worker.transact(con, "a", found["a"])
    con.execute("DETACH d")


class Disk:
    """What a cut leaves, at events that come later and later."""

    def __init__(self, start: bytes, events: list[Event]) -> None:
        self.durable = bytearray(start)
        self.told = dict.fromkeys(worker.TABLES, 0)
        self.events = events
        self.at = 0
        self.flushed = 0

    def go_on(self, at: int) -> list[Write]:
        """Goes on to before the event `at`; gives what became durable."""
        durable = []
        for event in self.events[self.at : at]:
            match event:
                case Flush(until) if until > self.flushed:
                    for write in self.writes(until):
                        write.put(self.durable)
                        durable.append(write)
                    self.flushed = until
                case Mark(table, count):
                    self.told[worker.TABLES[table]] = count
        self.at = at
        return durable

    def writes(self, until: int) -> list[Write]:
        """Since the last flush."""
        return [event for event in self.events[self.flushed : until] if isinstance(event, Write)]

    def kept(self, chance: random.Random) -> list[Write]:
        """What a cut leaves of what was not flushed."""
        how = chance.choice(["all", "none", "writes", "sectors"])
        kept = []
        for write in self.writes(self.at):
            if how == "all" or (how == "writes" and chance.random() < 0.5):
                kept.append(write)
            if how == "sectors":
                kept += [sector for sector in write.sectors() if chance.random() < 0.5]
        return kept

    def image(self, kept: list[Write]) -> bytearray:
        """The whole disk after a cut that left this."""
        image = bytearray(self.durable)
        for write in kept:
            write.put(image)
        return image


class Copy:
    """A file that holds what a cut leaves; only what differs from one to the next is written."""

    def __init__(self, path: Path, start: bytes, recorder: Recorder) -> None:
        self.path = path
        path.write_bytes(start)
        self._file = path.open("r+b", buffering=0)
        self._recorder = recorder
        self._changed: list[Write] = []
        self._is_recorded = False

    def lay(self, disk: Disk, durable: list[Write], kept: list[Write]) -> None:
        """Makes it what a cut leaves of a disk, of which some became durable since the last one."""
        if self._is_recorded:
            found = self._recorder.events()
            self._changed += [event for event in found if isinstance(event, Write)]
        changed = [(it.offset, it.offset + len(it.bytes)) for it in (*self._changed, *durable)]
        for begin, end in changed:
            os.pwrite(self._file.fileno(), disk.durable[begin:end], begin)
        for write in kept:
            os.pwrite(self._file.fileno(), write.bytes, write.offset)
        self._changed = list(kept)
        self._recorder.watch(self.path)
        self._is_recorded = True


class Recorder:
    """The library that keeps a record of what is written to a file."""

    def __init__(self, library_path: str, record: Path) -> None:
        self.library = ctypes.CDLL(library_path)
        self.library.recorded_disk_begin.argtypes = [ctypes.c_char_p] * 2
        self.library.recorded_disk_mark.argtypes = [ctypes.c_uint64] * 2
        self._record = record
        self._grown: tuple[int, list[Event]] = (0, [])

    def watch(self, path: Path) -> None:
        """Begins a new record, of this file."""
        self._grown = (0, [])
        begun = self.library.recorded_disk_begin(os.fsencode(path), os.fsencode(self._record))
        assert begun == 0, os.strerror(begun)

    def events(self) -> list[Event]:
        """What was done to the file since."""
        mine = list(parse(self._record.read_bytes()))
        at, grown = self._grown
        return [*mine[:at], *later(grown, at), *later(mine[at:], len(grown))]

    def grow(self, volume: Path) -> None:
        """Enlarges the file, and has the volume take the room, by a process with its own record."""
        at = len(self.events())
        os.truncate(volume, volume.stat().st_size + GROWN_BYTES)
        record = self._record.with_suffix(".grown")
        told = {"RECORDED_DISK_FILE": f"{volume}", "RECORDED_DISK_RECORD": f"{record}"}
        command = [f"{BINARY}", "nvme", "grow", f"{volume}", "--io", "file"]
        subprocess.run(command, env={**os.environ, **told}, check=True, capture_output=True)
        grown = list(parse(record.read_bytes()))
        assert {type(event) for event in grown} >= {Write, Flush}, grown
        self._grown = (at, grown)


def later(events: list[Event], count: int) -> list[Event]:
    """The same behind so many others."""
    return [
        replace(event, until=event.until + count) if isinstance(event, Flush) else event
        for event in events
    ]


def opened() -> duckdb.DuckDBPyConnection:
    """A DuckDB that attaches what cuts leave."""
    con = connect()
    con.execute("SET threads = 2; SET checkpoint_threshold = '64KB'")
    return con


def main(library_path: str, volume: Path, io: str, seed: int, cuts: int) -> None:
    """Records, and cuts; prints how many events there were, how many flushes and trims."""
    recorder = Recorder(library_path, volume.with_suffix(".record"))
    with worker.attach(volume, io=io) as con:
        worker.prepare(con)
    # Before it grows the volume has not all of its device.
    start = volume.read_bytes() + bytes(GROWN_BYTES)
    recorder.watch(volume)
    work(volume, io, recorder)
    events = recorder.events()
    chance = random.Random(seed)  # noqa: S311
    disk = Disk(start, events)
    copy = Copy(volume.with_suffix(".cut"), start, recorder)
    con = opened()
    for number, at in enumerate(sorted(chance.randrange(len(events) + 1) for _ in range(cuts))):
        durable = disk.go_on(at)
        kept = disk.kept(chance)
        copy.lay(disk, durable, kept)
        if number % CUTS_OF_DUCKDB == 0:
            assert copy.path.read_bytes() == disk.image(kept), "what is laid is what a cut leaves"
            con.close()
            con = opened()
        try:
            verify(con, copy.path, disk.told)
        except BaseException:
            print(f"seed {seed}, cut before event {at}; the disk: {copy.path}", file=sys.stderr)
            raise
    print(len(events), *(sum(isinstance(it, kind) for it in events) for kind in (Flush, Trim)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
