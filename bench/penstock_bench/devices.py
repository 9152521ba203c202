"""Devices of this machine for the workloads `nvme_raw` and `nvme`.

A file, a loop device on such a file, memory of the kernel (zram). Decides how each is made and
taken away again; they are filled with bytes that do not compress.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ("file", "loop", "zram")
PIECE = os.urandom(1 << 20)
FREE_TIMEOUT_S = 10.0
ZRAM_CONTROL = Path("/sys/class/zram-control")


class DeviceError(Exception):
    """A device cannot be made here; the message says why."""


def run(*command: str | Path) -> str:
    """What a program prints.

    Raises:
        DeviceError: it is missing or failed.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise DeviceError(f"{words[0]} is missing: {error}") from None
    if done.returncode:
        raise DeviceError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def why_not(kind: str) -> str:
    """Why there is no device of a kind on this machine; empty if there is."""
    if kind == "file":
        return ""
    if os.geteuid() != 0:
        return "it takes root"
    if kind == "loop" and not Path("/dev/loop-control").exists():
        return "the kernel has no loop devices"
    if kind == "zram" and not ZRAM_CONTROL.exists():
        return "the kernel has no zram"
    return ""


def fill(path: Path, size_bytes: int) -> None:
    """Writes all of it, past the page cache at the end."""
    with path.open("r+b" if path.is_block_device() else "wb") as out:
        for _ in range(size_bytes // len(PIECE)):
            out.write(PIECE)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def made(kind: str, folder: Path, size_bytes: int, filled: bool = True) -> Iterator[Path]:
    """A device of a kind and of so many bytes, which is gone afterwards."""
    if kind == "zram":
        with zram(size_bytes) as device:
            if filled:
                fill(device, size_bytes)
            yield device
        return
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / f"{kind}.img"
    try:
        # A loop device on a file without blocks would measure their allocation.
        fill(image, size_bytes)
        if kind == "file":
            yield image
            return
        device = Path(run("losetup", "--find", "--show", "--direct-io=on", image).strip())
        try:
            yield device
        finally:
            run("losetup", "--detach", device)
    finally:
        image.unlink(missing_ok=True)


def when_free(control: Path, word: str) -> None:
    """Tells the kernel something of a device that a ring of an ended process may hold a while."""
    deadline = time.monotonic() + FREE_TIMEOUT_S
    while True:
        try:
            control.write_text(word)
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise DeviceError(f"{control}: {error.strerror}") from None
            time.sleep(0.01)


@contextmanager
def zram(size_bytes: int) -> Iterator[Path]:
    """A block device in memory of its own."""
    number = (ZRAM_CONTROL / "hot_add").read_text().strip()
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size_bytes))
        yield Path(f"/dev/zram{number}")
    finally:
        when_free(Path(f"/sys/block/zram{number}/reset"), "1")
        when_free(ZRAM_CONTROL / "hot_remove", number)
