"""Volumes for the tests of nvme://: files, made by the binary, and databases on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from harness import BUILD, connect, wait_until

BINARY = BUILD / "penstock"
MEMORY_BYTES_MIN = 4 << 30
"""Two lanes of tests have some volumes of 256 MiB each, and copies of them."""


def penstock(*arguments: str | Path) -> str:
    """What `penstock` prints; it must succeed."""
    command = [str(BINARY), "nvme", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def format_volume(path: Path, size: str = "256MiB") -> Path:
    """An empty volume."""
    penstock("format", path, "--size", size)
    return path


def in_memory(otherwise: Path) -> Path:
    """Where files are in memory, and can be read past the page cache (Linux 6.6 or later)."""
    memory = Path("/dev/shm")  # noqa: S108
    if not memory.is_dir() or shutil.disk_usage(memory).free < MEMORY_BYTES_MIN:
        return otherwise
    try:
        with tempfile.NamedTemporaryFile(dir=memory) as file:
            os.close(os.open(file.name, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return otherwise
    return memory


def url(volume: Path, db: str = "main_db", **parameters: str) -> str:
    """The URL of a database."""
    more = "".join(f"&{key}={value}" for key, value in parameters.items())
    return f"nvme://{volume}?db={db}{more}"


def attached(
    volume: Path, db: str = "main_db", options: str = "", **parameters: str
) -> duckdb.DuckDBPyConnection:
    """A fresh DuckDB with a database of the volume attached as `d`, and in use."""
    con = connect()
    con.execute(f"ATTACH '{url(volume, db, **parameters)}' AS d {options}")
    con.execute("USE d")
    return con


def value(con: duckdb.DuckDBPyConnection, sql: str) -> object:
    """The one cell of a result."""
    row = con.execute(sql).fetchone()
    assert row is not None
    return row[0]


@contextmanager
def loop_device(file: Path, *options: str) -> Iterator[Path]:
    """A block device over a file, past the page cache."""
    command = ["losetup", "--find", "--show", "--direct-io=on", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    device = Path(done.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", str(device)], check=True)
        # A ring that was closed lets go of it a little later.
        wait_until(lambda: not is_under(device, file), f"the end of {device}")


def is_under(device: Path, file: Path) -> bool:
    """Whether a loop device is over this file: another test may have it by now, over its own."""
    try:
        told = Path(f"/sys/block/{device.name}/loop/backing_file").read_text().rstrip("\n")
    except OSError:  # it has none any more
        return False
    return told == str(file.resolve())


def has_loop_devices() -> bool:
    """Whether this user may make one."""
    if os.geteuid() != 0 or not shutil.which("losetup"):
        return False
    return subprocess.run(["losetup", "--find"], check=False).returncode == 0


NOT_RUN: list[str] = []
"""What could not be tested here, and why; conftest.py tells of it at the end."""


def not_run(what: str, why: str = "no loop device can be made here") -> None:
    """Notes that something was not tested: a test that passes without it would hide that."""
    NOT_RUN.append(f"{what}: NOT RUN: {why}")
