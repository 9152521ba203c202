"""DuckDB on a disk that fails, at each command in turn; run with failing_disk.c loaded before it.

usage: LD_PRELOAD=failing_disk.so failing_disk.py LIBRARY VOLUME FAILURE once|lasting STEP IO

A round copies the volume, lets STEP more commands pass than the round before, and works until
something fails or all is done. Then the disk is well again: the database opens, and holds exactly
the rows of the transactions that were told to be committed, or of one more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

import duckdb
import nvme_worker as worker
from harness import connect
from nvme import url

FOREVER = 1 << 40
# What an error says, by the failure that was behind it.
TOLD = {
    "EIO": "the device failed",
    "ENODEV": "the device is gone",
    "ENOSPC": "the device is full",
    "EROFS": "the device is read-only",
}


def work(volume: Path, told: dict[str, int], io: str) -> None:
    """Replays the log, commits, checkpoints, commits more; the last commit stays in the log."""
    with connect() as con:
        con.execute("SET threads = 2")
        con.execute("PRAGMA disable_checkpoint_on_shutdown")
        con.execute(f"ATTACH '{url(volume, 'd', io=io)}' AS d")
        for _ in range(2):
            for table in worker.TABLES:
                worker.transact(con, table, told[table])
                told[table] += 1
            con.execute("CHECKPOINT d")
        worker.transact(con, "a", told["a"])
        told["a"] += 1
        con.execute("DETACH d")


def round_of(library: ctypes.CDLL, volume: Path, failing: range, failure: str, io: str) -> bool:
    """One round; whether the failure came to pass."""
    number = getattr(errno, failure)
    told = dict.fromkeys(worker.TABLES, 3)
    armed = library.failing_disk_arm(os.fsencode(volume), failing.start, failing.stop, number)
    assert armed == 0, os.strerror(armed)
    error = None
    try:
        work(volume, told, io)
    except duckdb.Error as raised:
        error = str(raised)
    was_reached = bool(library.failing_disk_calls() > failing.start)
    library.failing_disk_arm(os.fsencode(volume), 0, 0, 0)
    if error is not None:
        assert was_reached, error
        assert TOLD[failure] in error or "failed earlier" in error, error
        assert volume.name in error, error
    with worker.attach(volume, io=io) as con:
        worker.verify(con, told)
    return was_reached


def main(library_path: str, volume: Path, failure: str, lasting: bool, step: int, io: str) -> None:
    """All rounds; prints how many commands there are."""
    library = ctypes.CDLL(library_path)
    library.failing_disk_arm.argtypes = [ctypes.c_char_p] + [ctypes.c_long] * 2 + [ctypes.c_int]
    library.failing_disk_calls.restype = ctypes.c_long
    with worker.attach(volume) as con:
        worker.prepare(con)
        con.execute("CHECKPOINT d")
        con.execute("PRAGMA disable_checkpoint_on_shutdown")
        for number in range(3):
            for table in worker.TABLES:
                worker.transact(con, table, number)
    whole = volume.read_bytes()
    first = 0
    while True:
        volume.write_bytes(whole)
        failing = range(first, FOREVER if lasting else first + 1)
        try:
            if not round_of(library, volume, failing, failure, io):
                break
        except BaseException:
            print(f"with the failure of command {first}", file=sys.stderr)
            raise
        first += step
    print(first)


if __name__ == "__main__":
    how = (sys.argv[3], sys.argv[4] == "lasting", int(sys.argv[5]), sys.argv[6])
    main(sys.argv[1], Path(sys.argv[2]), *how)
