"""Spilling to a disk that fails now and then; run with failing_disk.c loaded before it.

usage: LD_PRELOAD=failing_disk.so failing_spill.py LIBRARY VOLUME ROUNDS IO

A round lets one command fail, or all from one of them on, and whatever comes of the query is an
error or the right answer. Prints how many rounds ended with an error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

import duckdb
from harness import connect
from nvme import value

ROWS = 3_000_000
SORTED = f"SELECT i, hash(i) AS h, repeat('x', 40) || i AS text FROM range({ROWS}) r(i) ORDER BY h"
CHECK = "SELECT bit_xor(hash(text)) FROM t"
TOLD = "the device failed"


def work(volume: Path, io: str) -> object:
    """A table larger than memory, and what it holds."""
    with connect() as con:
        con.execute("SET threads = 2; SET memory_limit = '80MB'")
        con.execute("SET enable_progress_bar = false")
        # Half of it, for what is spilled: the rest of it goes to the disk.
        con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
        con.execute("SET GLOBAL penstock_nvme_spill_memory_bytes = 0")
        con.execute(f"SET temp_directory = 'nvme://{volume}?temp&io={io}'")
        con.execute(f"CREATE TABLE t AS {SORTED}")
        return value(con, CHECK)


def main(library_path: str, volume: Path, rounds: int, io: str) -> None:
    """A round without failures, which tells how many commands there are, and the others."""
    library = ctypes.CDLL(library_path)
    library.failing_disk_arm.argtypes = [ctypes.c_char_p] + [ctypes.c_long] * 2 + [ctypes.c_int]
    library.failing_disk_calls.restype = ctypes.c_long

    def arm(first: int, end: int) -> None:
        assert library.failing_disk_arm(os.fsencode(volume), first, end, errno.EIO) == 0

    with connect() as con:
        right = value(con, f"SELECT bit_xor(hash(repeat('x', 40) || i)) FROM range({ROWS}) r(i)")
    arm(1 << 40, 1 << 40)
    assert work(volume, io) == right
    calls = int(library.failing_disk_calls())
    assert calls > 100, f"{calls} commands: nothing was spilled"
    errors = 0
    for number in range(rounds):
        first = calls * (number + 1) // (rounds + 1)
        arm(first, first + 1 if number % 2 else 1 << 40)
        try:
            assert work(volume, io) == right, f"a wrong answer after command {first} failed"
        except duckdb.Error as raised:
            errors += 1
            assert TOLD in str(raised), raised
    print(errors)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
