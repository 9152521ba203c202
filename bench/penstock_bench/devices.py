"""Devices of this machine for the workloads `nvme_raw` and `nvme`.

A file, a loop device on such a file, memory of the kernel (zram), NVMe namespaces that somebody
names. Decides how each is made and taken away again, and which names of a namespace belong
together; they are filled with bytes that do not compress.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NVME = "nvme"
# Those that a workload makes for itself; a namespace is overwritten only where it is named.
OURS = ("file", "loop", "zram")
KINDS = (*OURS, NVME)
NAMESPACES = "BENCH_NVME"
"""The variable that names namespaces whose contents may go: for a volume, and for stock DuckDB."""
PIECE = os.urandom(1 << 20)
FREE_TIMEOUT_S = 10.0
ZRAM_CONTROL = Path("/sys/class/zram-control")
ZRAM_MARK = "zram-"
BOOT = Path("/proc/sys/kernel/random/boot_id")


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
    if kind == NVME:
        return why_no_namespaces()
    return ""


def why_no_namespaces() -> str:
    """Why there are no two namespaces to overwrite; empty if there are."""
    found = namespaces()
    if len(set(found)) < 2:
        return f"{NAMESPACES} does not name two namespaces (/dev/nvme0n1) whose contents may go"
    absent = [str(path) for path in found if not path.is_block_device()]
    return f"{', '.join(absent)}: no block device" if absent else ""


def namespaces() -> list[Path]:
    """The block devices of the namespaces that may be overwritten (`/dev/nvme0n1`)."""
    words = os.environ.get(NAMESPACES, "").replace(",", " ").split()
    # Stable names are links.
    devices = [Path(word).resolve() for word in words]
    return [it.parent / re.sub(r"^ng(?=\d)", "nvme", it.name) for it in devices]


def generic(device: Path) -> Path:
    """The character device of a namespace's block device."""
    return device.parent / re.sub(r"^nvme(?=\d)", "ng", device.name)


def label(kind: str) -> str:
    """What records call a kind of device: times of an emulated controller are none of a device."""
    if kind != NVME:
        return kind
    models = [Path(f"/sys/block/{it.resolve().name}/device/model") for it in namespaces()]
    is_emulated = any(it.exists() and "QEMU" in it.read_text() for it in models)
    return f"{kind} (emulated: these are no times of a device)" if is_emulated else kind


def fill(path: Path, size_bytes: int) -> None:
    """Writes all of it, past the page cache at the end.

    Raises:
        DeviceError: it is a block device that is mounted, or another's.
    """
    is_device = path.is_block_device()
    flags = os.O_RDWR | (os.O_EXCL if is_device else os.O_CREAT | os.O_TRUNC)
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise DeviceError(f"{path} is not filled: {error.strerror}") from None
    with os.fdopen(descriptor, "r+b") as out:
        for _ in range(size_bytes // len(PIECE)):
            out.write(PIECE)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def made(
    kind: str, folder: Path, size_bytes: int, filled: bool = True, number: int = 0
) -> Iterator[Path]:
    """A device of a kind and of so many bytes, which is gone afterwards.

    Of namespaces it is the one of that number, as large as it is.
    """
    if kind == NVME:
        device = namespaces()[number]
        if filled:
            fill(device, int(run("blockdev", "--getsize64", device)))
        yield device
        return
    if kind == "zram":
        with zram(size_bytes, folder) as device:
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
def zram(size_bytes: int, folder: Path) -> Iterator[Path]:
    """A block device in memory of its own, of which a mark is kept in a folder meanwhile."""
    number = (ZRAM_CONTROL / "hot_add").read_text().strip()
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f"{ZRAM_MARK}{number}"
    try:
        mark.write_text(zram_identity(number))
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size_bytes))
        yield Path(f"/dev/zram{number}")
    finally:
        remove_zram(number)
        mark.unlink(missing_ok=True)


def remove_zram(number: str) -> None:
    """Takes a device in memory away."""
    when_free(Path(f"/sys/block/zram{number}/reset"), "1")
    when_free(ZRAM_CONTROL / "hot_remove", number)


def zram_identity(number: str) -> str:
    """What no other device of that number ever has; empty if there is none, or the kernel is old.

    The kernel counts disks since it started, and its start has a number of its own.
    """
    told = (BOOT, Path(f"/sys/block/zram{number}/diskseq"))
    return " ".join(path.read_text().strip() for path in told) if told[1].exists() else ""


def zram_marks(folder: Path) -> list[str]:
    """The numbers of devices of which a mark was left in a folder, and which are still those."""
    marks = {it.name.removeprefix(ZRAM_MARK): it.read_text() for it in folder.glob(f"{ZRAM_MARK}*")}
    return [number for number, mark in marks.items() if mark and mark == zram_identity(number)]
