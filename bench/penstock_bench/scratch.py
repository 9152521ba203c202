"""Where the workloads on devices keep what they make, and what of it a killed bench left behind.

Each bench has a folder of its own below the place of its results, and a lock on it while it lives.
What lies in a folder, is mounted in it or is a loop device on a file of it belongs to that bench:
once nobody holds the lock the next bench takes it away. Decides what is whose; nothing outside
these folders is ever touched.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_bench.devices import DeviceError, remove_zram, run, zram_marks
from penstock_bench.progress import say

FOLDERS = "devices"
LOCK = "lock"
BLOCK = Path("/sys/block")
MOUNTS = Path("/proc/self/mountinfo")
DELETED = " (deleted)"


@contextmanager
def held(out: Path) -> Iterator[Path]:
    """A folder for devices that is gone afterwards; what killed benches left goes before."""
    folders = (out / FOLDERS).resolve()
    folders.mkdir(parents=True, exist_ok=True)
    # One at a time: else a folder that is not locked yet looks as if it were left.
    with (folders / LOCK).open("w") as one:
        fcntl.flock(one, fcntl.LOCK_EX)
        clear(folders)
        folder = Path(tempfile.mkdtemp(dir=folders))
        lock = (folder / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def clear(folders: Path) -> None:
    """Takes away what nobody holds any more; what cannot go is told, and left to the next bench."""
    alive = {it.name for it in folders.iterdir() if is_held(it)}

    def is_left(path: Path) -> bool:
        return path.is_relative_to(folders) and path.relative_to(folders).parts[0] not in alive

    try:
        for mount in reversed(mounts(os.fsdecode(MOUNTS.read_bytes()))):
            if is_left(mount):
                run("umount", mount)
                say(f"a bench that was killed had {mount} mounted: freed")
        for device, file in loops(BLOCK):
            if is_left(file):
                run("losetup", "--detach", device)
                say(f"a bench that was killed had {device}, on {file}: freed")
        for folder in [it for it in folders.iterdir() if it.is_dir() and is_left(it)]:
            for number in zram_marks(folder):
                remove_zram(number)
                say(f"a bench that was killed had /dev/zram{number}: freed")
            shutil.rmtree(folder)
    except (DeviceError, OSError) as error:
        say(f"a bench that was killed left something that cannot be freed: {error}")


def is_held(folder: Path) -> bool:
    """Whether a bench that lives has a folder."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def mounts(table: str) -> list[Path]:
    """Where something is mounted, as the kernel tells it (mountinfo), in the order of mounting."""
    points = [line.split()[4] for line in table.splitlines()]
    # A space is written as its number in base eight, and so are others.
    return [Path(re.sub(r"\\([0-7]{3})", lambda it: chr(int(it[1], 8)), it)) for it in points]


def loops(block: Path) -> list[tuple[Path, Path]]:
    """Loop devices and the files under them, also where these were deleted."""
    found = []
    for told in sorted(block.glob("loop*/loop/backing_file")):
        try:
            name = told.read_text().removesuffix("\n").removesuffix(DELETED)
        except OSError:
            # It was taken away meanwhile.
            continue
        found.append((Path("/dev") / told.parents[1].name, Path(name)))
    return found
