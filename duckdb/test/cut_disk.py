"""DuckDB's work on a volume, and power cuts at any point of it; run with recorded_disk.c loaded.

usage: LD_PRELOAD=recorded_disk.so cut_disk.py LIBRARY VOLUME IO SEED CUTS [FILE]

FILE is what lies under VOLUME where that is a loop device; what cuts leave is laid beside it. What
DuckDB writes is recorded while three threads commit to two databases, checkpoints come between,
tables are loaded, indexed and dropped, logs replayed, and between two rounds the volume grows. A
cut keeps what was flushed before it; of what was written or trimmed since then it keeps all,
nothing, some commands, or some sectors. Of what is trimmed, some holds zeros from then on and some
what nobody wrote. After each cut the databases open and hold exactly the rows of the transactions
that were told to be committed, or of one more. Cuts that leave the same are opened once, and what
is found is held against what was told before each of them. Half of the cuts come while a log has a
second one beside it (`.wal.checkpoint`: somebody committed while a checkpoint ran). Where the
replay makes one of two (`.wal.recovery`) the power goes a second time, in the midst of that.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import nvme_worker as worker
from harness import connect
from nvme import url, value
from recorded_disk import (
    Copy,
    Disk,
    Event,
    Flush,
    History,
    Mark,
    Recorder,
    Trim,
    Write,
    names,
    with_two_logs,
)

# Transactions of each writer in a round, and rounds: a round begins with the replay of a log.
TRANSACTIONS = 12
ROUNDS = 3
# Who appends goes on until a commit has met a checkpoint, but not for ever.
PAIRS_MAX = 250
# Who writes: a database and a table of it.
WRITERS = (*(("d", table) for table in worker.TABLES), ("e", "grows"))
APPENDS = len(WRITERS) - 1
DATABASES = ("d", "e")
# Cuts that one DuckDB looks at: loading it takes longer than opening a database.
CUTS_OF_DUCKDB = 50
LOADED_ROWS = 30_000
# Of so many replays that make one log of two, the power goes in the midst of one.
AGAIN_EVERY = 4
# So long DuckDB waits in the midst of a checkpoint: others commit meanwhile, to a log of its own.
CHECKPOINT_MS = 10
# The volume grows after this round, by as many bytes.
GROWS_AFTER = 1
GROWN_BYTES = 8 << 20
# How a mark is called that tells no transaction: what was there before has been looked at.
LOOKED_AT = 99


def load(con: duckdb.DuckDBPyConnection, number: int) -> None:
    """A table that is written past the log, indexed, and the one before it dropped."""
    con.execute(
        f"CREATE TABLE d.loaded_{number} AS SELECT i, hash(i) AS h FROM range({LOADED_ROWS}) r(i)"
    )
    con.execute(f"CREATE INDEX by_hash_{number} ON d.loaded_{number} (h)")
    if number:
        con.execute(f"DROP TABLE d.loaded_{number - 1}")


def attach(con: duckdb.DuckDBPyConnection, volume: Path, io: str) -> None:
    """Both databases."""
    for db in DATABASES:
        con.execute(f"ATTACH '{url(volume, db, io=io)}' AS {db}")


def detach(con: duckdb.DuckDBPyConnection) -> None:
    """Lets go of both."""
    for db in DATABASES:
        con.execute(f"DETACH {db}")


def checkpoint(
    con: duckdb.DuckDBPyConnection,
    db: str,
    beside: list[threading.Thread],
    committed: threading.Event,
    begins: threading.Event | None = None,
) -> None:
    """Checkpoints of a database as long as threads are at work on it, each of which is told."""
    while any(thread.is_alive() for thread in beside):
        # Without new rows there is little to do, and trying costs the processor that others need.
        committed.wait(CHECKPOINT_MS / 1000)
        committed.clear()
        if begins:
            begins.set()
        # Refused while another transaction changes rows that are there.
        with suppress(duckdb.TransactionException):
            con.execute(f"CHECKPOINT {db}")


def meets(recorder: Recorder) -> bool:
    """Whether somebody committed while a checkpoint ran."""
    return bool(with_two_logs(recorder.events()))


def appends(
    con: duckdb.DuckDBPyConnection,
    begins: threading.Event,
    recorder: Recorder,
    append: Callable[[], None],
) -> None:
    """Pairs of appends, of which the second meets a checkpoint.

    A checkpoint lets others commit where somebody reads who must not see the newest rows. However
    busy the machine is: that it begins is waited for, and if no pair met one, more follow.
    """
    (db, table), reader = WRITERS[APPENDS], con.cursor()
    for pair in range(PAIRS_MAX):
        if 2 * pair >= TRANSACTIONS and meets(recorder):
            return
        reader.execute(f"BEGIN; FROM {db}.{table} LIMIT 1")
        append()
        begins.clear()
        begins.wait()
        append()
        reader.execute("ROLLBACK")
    raise AssertionError("somebody commits while a checkpoint runs")


def work(volume: Path, io: str, recorder: Recorder, under: Path) -> None:
    """Rounds of transactions of three threads; each commit is marked."""
    done = [0] * len(WRITERS)
    committed = {db: threading.Event() for db in DATABASES}

    def commit(writer: int, con: duckdb.DuckDBPyConnection) -> None:
        db, table = WRITERS[writer]
        if writer == APPENDS:
            worker.append(con, done[writer], db)
        else:
            worker.transact(con, table, done[writer])
        done[writer] += 1
        committed[WRITERS[writer][0]].set()
        recorder.library.recorded_disk_mark(writer, done[writer])

    for number in range(ROUNDS):
        with connect() as con:
            con.execute("SET threads = 2; SET checkpoint_threshold = '64KB'")
            con.execute("PRAGMA disable_checkpoint_on_shutdown")
            con.execute(f"SET debug_checkpoint_sleep_ms = {CHECKPOINT_MS}")
            attach(con, volume, io)

            begins = threading.Event()

            def run(
                writer: int,
                con: duckdb.DuckDBPyConnection = con,
                begins: threading.Event = begins,
            ) -> None:
                mine = con.cursor()
                if writer == APPENDS:
                    appends(mine, begins, recorder, lambda: commit(writer, mine))
                    return
                for _ in range(TRANSACTIONS):
                    commit(writer, mine)

            threads = [threading.Thread(target=run, args=(it,)) for it in range(len(WRITERS))]
            changing, appending = threads[:APPENDS], threads[APPENDS:]
            of_e = (con.cursor(), "e", appending, committed["e"], begins)
            beside = threading.Thread(target=checkpoint, args=of_e)
            for thread in (*threads, beside):
                thread.start()
            mine = con.cursor()
            load(mine, number)
            checkpoint(mine, "d", changing, committed["d"])
            for thread in (*threads, beside):
                thread.join()
            detach(con)
        if number == GROWS_AFTER:
            recorder.grow(volume, under, GROWN_BYTES)
    assert all(count >= ROUNDS * TRANSACTIONS for count in done), done
    with connect() as con:
        sql = "SELECT value FROM penstock_stats() WHERE name = 'device_bytes_in_place'"
        assert value(con, f"{sql} AND device IS NULL") == 0, "there is room for blocks to move"


def verify(con: duckdb.DuckDBPyConnection, copy: Copy, told: dict[int, int]) -> list[int]:
    """What must be there, and that work can go on; gives the transactions of each writer."""
    attach(con, copy.path, "file")
    counts = [told.get(writer, 0) for writer in range(len(WRITERS))]
    found = worker.verify(con, dict(zip(worker.TABLES, counts[:APPENDS], strict=True)))
    appended = worker.verify_appended(con, counts[APPENDS], "e")
    tables = con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'loaded_%'"
    ).fetchall()
    assert len(tables) <= 2, tables
    for (name,) in tables:
        sql = f"SELECT count(*) FROM d.{name} WHERE h = hash(i)"
        assert value(con, sql) == LOADED_ROWS, name
    copy.recorder.library.recorded_disk_mark(LOOKED_AT, 0)
    worker.transact(con, "a", found["a"])
    worker.append(con, appended, "e")
    detach(con)
    return [*(found[table] for table in worker.TABLES), appended]


@dataclass
class Look:
    """What was found on what a cut left."""

    counts: list[int]
    """Transactions of each writer."""
    replay: list[Event]
    """What was done to the disk until then, if one log was made of two."""

    def check(self, told: dict[int, int]) -> None:
        """At most one more than was told by now; all else hangs on the disk alone."""
        for writer, count in enumerate(self.counts):
            assert told.get(writer, 0) <= count <= told.get(writer, 0) + 1, (writer, told, count)


class Looks:
    """Looks at what cuts leave, at each state of the disk once."""

    def __init__(self, disk: Disk, copy: Copy) -> None:
        self.disk, self.copy = disk, copy
        self.of_state: dict[object, Look] = {}
        self.con = opened()

    def look(self, kept: list[Write]) -> Look:
        """What there is after a cut that left this."""
        state = self.disk.state(kept)
        if state not in self.of_state:
            if len(self.of_state) % CUTS_OF_DUCKDB == 0:
                self.con.close()
                self.con = opened()
            self.copy.lay(kept)
            counts = verify(self.con, self.copy, self.disk.told)
            done = self.copy.events()
            done = done[: done.index(Mark(LOOKED_AT, 0))]
            files = (name for event in done for name in names(event) or ())
            is_replay = any(name.endswith(".wal.recovery") for name in files)
            self.of_state[state] = Look(counts, done if is_replay else [])
        look = self.of_state[state]
        look.check(self.disk.told)
        return look


def opened() -> duckdb.DuckDBPyConnection:
    """A DuckDB that attaches what cuts leave."""
    con = connect()
    # Each table has one row group, so a second thread would only have the first one spin.
    con.execute("SET threads = 1; SET checkpoint_threshold = '64KB'")
    return con


def cut_again(
    con: duckdb.DuckDBPyConnection,
    disk: Disk,
    left: list[Write],
    done: list[Event],
    second: Copy,
    chance: random.Random,
) -> None:
    """The power goes a second time, while a log was replayed; then all is there, too.

    The first cut left `left`, and the replay did `done`.
    """
    replay = History(done)
    durable = replay.go_on(chance.randrange(len(done) + 1))
    second.lay([*left, *durable, *replay.kept(chance)])
    verify(con, second, disk.told)
    second.events()


def places(events: list[Event], cuts: int, chance: random.Random) -> list[int]:
    """Before which events the power goes: half of them while there are two logs."""
    two_logs = with_two_logs(events)
    anywhere = [chance.randrange(len(events) + 1) for _ in range(cuts - cuts // 2)]
    return sorted([*anywhere, *(chance.choice(two_logs) for _ in range(cuts // 2))])


def main(
    library_path: str, volume: Path, io: str, seed: int, cuts: int, under: Path | None = None
) -> None:
    """Records, and cuts; prints how many events, flushes and trims there were.

    And after how many cuts two logs were made one, in which the power goes a second time, and how
    many states of the disk the cuts left.
    """
    file = under or volume
    recorder = Recorder(library_path, file.with_suffix(".record"))
    with worker.attach(volume, io=io) as con:
        con.execute(f"ATTACH '{url(volume, 'e', io=io)}' AS e")
        worker.prepare(con)
        con.execute("CREATE TABLE e.grows (i BIGINT, text VARCHAR)")
    # Before it grows the volume has not all of its device.
    start = volume.read_bytes() + bytes(GROWN_BYTES)
    recorder.watch(volume)
    work(volume, io, recorder, file)
    events = recorder.events()
    chance = random.Random(seed)  # noqa: S311
    disk = Disk(start, events)
    looks = Looks(disk, Copy(file.with_suffix(".cut"), disk, recorder))
    second = Copy(file.with_suffix(".second"), disk, recorder)
    replays = 0
    for at in places(events, cuts, chance):
        disk.go_on(at)
        kept = disk.kept(chance)
        try:
            replay = looks.look(kept).replay
            if replay:
                replays += 1
                if replays % AGAIN_EVERY == 0:
                    cut_again(looks.con, disk, kept, replay, second, chance)
        except BaseException:
            print(f"seed {seed}, cut before event {at}; {looks.copy.path}", file=sys.stderr)
            raise
    counts = (sum(isinstance(it, kind) for it in events) for kind in (Flush, Trim))
    print(len(events), *counts, replays, len(looks.of_state))


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
        int(sys.argv[5]),
        *map(Path, sys.argv[6:]),
    )
