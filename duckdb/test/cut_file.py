"""DuckDB's checkpoints into a plain file, and power cuts in them; run with recorded_disk.c loaded.

usage: LD_PRELOAD=recorded_disk.so cut_file.py LIBRARY FILE SEED

What cut_disk.py does to a volume, without Penstock. Prints how many of how many cuts left a
database that cannot be opened.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
from pathlib import Path

import duckdb
from recorded_disk import Disk, Write, parse

CHECKPOINTS = 12
CUTS_OF_EVENT = 3


def is_readable(file: Path) -> bool:
    """Whether DuckDB opens the file and reads every table."""
    try:
        with duckdb.connect(str(file), read_only=True) as con:
            for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                con.execute(f"SELECT sum(i) FROM {name}").fetchall()
    except duckdb.IOException:
        return False
    return True


def main(library_path: str, file: Path, seed: int) -> None:
    """Records and cuts. All is in the file at each checkpoint, so that no log is needed."""
    library = ctypes.CDLL(library_path)
    library.recorded_disk_begin.argtypes = [ctypes.c_char_p] * 2
    record, copy = file.with_suffix(".record"), file.with_suffix(".cut")
    with duckdb.connect(str(file)) as con:
        con.execute("CREATE TABLE first (i BIGINT)")
        con.execute("CHECKPOINT")
        start = file.read_bytes()
        begun = library.recorded_disk_begin(os.fsencode(file), os.fsencode(record))
        assert begun == 0, os.strerror(begun)
        for number in range(CHECKPOINTS):
            con.execute(f"CREATE TABLE t{number} AS SELECT i, hash(i) FROM range(3000) r(i)")
            con.execute("CHECKPOINT")
    events = list(parse(record.read_bytes()))
    end = max(event.offset + len(event.bytes) for event in events if isinstance(event, Write))
    disk, chance = Disk(start.ljust(end, b"\0"), events), random.Random(seed)  # noqa: S311
    lost = cuts = 0
    for at in range(len(events) + 1):
        disk.go_on(at)
        for _ in range(CUTS_OF_EVENT):
            copy.write_bytes(disk.image(disk.kept(chance)))
            lost += not is_readable(copy)
            cuts += 1
    print(lost, cuts)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
