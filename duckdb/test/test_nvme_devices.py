"""ATTACH on block devices: their block sizes, read-only ones, those of memory, what they hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from harness import connect, wait_until
from nvme import (
    BINARY,
    attached,
    format_volume,
    has_loop_devices,
    loop_device,
    not_run,
    penstock,
    url,
    value,
)

IOS = ["uring", "direct", "file"]
ZRAM = Path("/sys/block/zram0")
NO_LOOP = "no loop device can be made here"


def grow(con: duckdb.DuckDBPyConnection, rows: int) -> None:
    """Brings `t` to so many rows, part of them in the log only."""
    con.execute("CREATE TABLE IF NOT EXISTS t (i BIGINT PRIMARY KEY, h UBIGINT)")
    first = value(con, "SELECT count(*) FROM t")
    con.execute(f"INSERT INTO t SELECT i, hash(i) FROM range({first}, {rows - 10}) r(i)")
    con.execute("CHECKPOINT")
    con.execute("PRAGMA disable_checkpoint_on_shutdown")
    con.execute(f"INSERT INTO t SELECT i, hash(i) FROM range({rows - 10}, {rows}) r(i)")


def holds(con: duckdb.DuckDBPyConnection, rows: int) -> None:
    """Fails unless `t` has exactly these rows, and its index knows them."""
    sums = "count(*), bit_xor(h), sum(i)"
    wanted = f"SELECT {sums} FROM (SELECT i, hash(i) AS h FROM range({rows}) r(i))"
    assert con.execute(f"SELECT {sums} FROM t").fetchall() == con.execute(wanted).fetchall()
    assert value(con, f"SELECT h = hash(i) FROM t WHERE i = {rows - 1}") is True


def without(what: str, why: str, tmp_path: Path) -> None:
    """Where there is no such device it is said so, and a file has to do."""
    not_run(f"test_nvme_devices: {what}", why)
    volume = format_volume(tmp_path / "disk.img", "64MiB")
    for count, io in enumerate(IOS, 1):
        with attached(volume, io=io) as con:
            grow(con, count * 20000)
            holds(con, count * 20000)


def test_a_volume_moves_between_block_sizes(tmp_path: Path) -> None:
    if not has_loop_devices():
        without("blocks of several sizes", NO_LOOP, tmp_path)
        return
    volume = format_volume(tmp_path / "disk.img", "64MiB")
    count = 0
    for block_size in ["512", "4096", "512"]:
        with loop_device(volume, "--sector-size", block_size) as device:
            for io in IOS:
                with attached(device, io=io) as con:
                    if count:
                        holds(con, count)
                    count += 10000
                    grow(con, count)
            assert "sound" in penstock("check", device)
    with attached(volume, options="(READ_ONLY)") as con:
        holds(con, count)


def test_a_device_that_is_read_only(tmp_path: Path) -> None:
    if not has_loop_devices():
        without("a read-only device", NO_LOOP, tmp_path)
        return
    volume = format_volume(tmp_path / "disk.img", "64MiB")
    with attached(volume) as con:
        grow(con, 5000)
    before = volume.read_bytes()
    with loop_device(volume, "--read-only") as device:
        for io in IOS:
            told = f"{device}.*(refused access|read-only)"
            with connect() as con, pytest.raises(duckdb.Error, match=told):
                con.execute(f"ATTACH '{url(device, io=io)}' AS d")
            # The log is read, and stays as it is.
            with attached(device, options="(READ_ONLY)", io=io) as con:
                holds(con, 5000)
                with pytest.raises(duckdb.Error, match="read-only"):
                    con.execute("INSERT INTO t VALUES (-1, 1)")
    assert volume.read_bytes() == before


@contextmanager
def mounted(device: Path, folder: Path) -> Iterator[None]:
    """An ext4 file system on the device, mounted."""
    subprocess.run(["mkfs.ext4", "-q", str(device)], check=True)
    folder.mkdir()
    subprocess.run(["mount", "-o", "ro", str(device), str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_what_is_mounted_is_left_alone_by_force_too(tmp_path: Path) -> None:
    if not has_loop_devices() or not shutil.which("mkfs.ext4"):
        not_run("test_nvme_devices: a mounted device", "no loop device, or no mkfs.ext4")
        return
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(32 << 20))
    with loop_device(image) as device, mounted(device, tmp_path / "there"):
        before = image.read_bytes()
        for io in IOS:
            for kind in ("", "--cache"):
                command = [str(BINARY), "nvme", "format", str(device), "--force"]
                command += [*kind.split(), "--io", io]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode and "in use: mounted" in done.stderr, done.stderr
            with connect() as con, pytest.raises(duckdb.Error, match=r"no Penstock volume.*ext4"):
                con.execute(f"ATTACH '{url(device, io=io)}' AS d")
        assert image.read_bytes() == before


def test_what_is_no_volume_is_named_and_left_alone(tmp_path: Path) -> None:
    cache, ext4, database = (tmp_path / name for name in ("cache", "ext4", "x.duckdb"))
    penstock("format", "--cache", cache, "--size", "64MiB")
    ext4.write_bytes(bytes(1080) + b"\x53\xef" + bytes(8 << 20))
    with duckdb.connect(str(database)) as con:
        con.execute("CREATE TABLE t AS SELECT hash(i) AS h FROM range(1000000) r(i)")
    for image, what in [(cache, "a Penstock cache"), (ext4, "an ext2"), (database, "a DuckDB")]:
        before = image.read_bytes()
        for options in ["", "(READ_ONLY)"]:
            with connect() as con, pytest.raises(duckdb.Error, match=f"no Penstock volume.*{what}"):
                con.execute(f"ATTACH '{url(image)}' AS d {options}")
        assert image.read_bytes() == before


def test_who_has_a_block_device_is_told(tmp_path: Path) -> None:
    if not has_loop_devices():
        without("a block device that another process has", NO_LOOP, tmp_path)
        return
    volume = format_volume(tmp_path / "disk.img", "64MiB")
    with loop_device(volume) as device:
        with attached(device) as con:
            grow(con, 1000)
        for options in ["", "(READ_ONLY)"]:
            with attached(device, options=options):
                for verb in [["grow"], ["rm", "--db", "x"], ["format", "--force"]]:
                    command = [str(BINARY), "nvme", *verb, str(device)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    told = f"Process {os.getpid()} has it. Close it there"
                    assert done.returncode and told in done.stderr, done.stderr
            with attached(device, options="(READ_ONLY)") as con:
                holds(con, 1000)


def reset() -> bool:
    """Empties the device of memory, if nobody has it open."""
    try:
        (ZRAM / "reset").write_text("1")
    except OSError:
        return False
    return True


@contextmanager
def zram() -> Iterator[Path | None]:
    """The device of memory, if the kernel has it and nobody uses it: blocks of 4096 bytes, which
    wants buffers so aligned."""
    size = ZRAM / "disksize"
    if os.geteuid() != 0 or not size.exists() or size.read_text().strip() != "0":
        yield None
        return
    size.write_text("64M")
    try:
        yield Path("/dev/zram0")
    finally:
        # The kernel closes a ring a moment behind its process.
        wait_until(reset, "giving the device of memory back")


def test_a_device_that_wants_aligned_memory(tmp_path: Path) -> None:
    with zram() as device:
        if device is None:
            why = "no /dev/zram0 that is free, or not root"
            without("a device that wants aligned memory", why, tmp_path)
            return
        penstock("format", device)
        for count, io in enumerate(IOS, 1):
            with attached(device, io=io) as con:
                grow(con, count * 20000)
            with attached(device, options="(READ_ONLY)", io=io) as con:
                holds(con, count * 20000)
        subprocess.run(["blockdev", "--flushbufs", device], check=True)
        assert "sound" in penstock("check", device)


def test_a_file_and_a_loop_device_over_it_are_one(tmp_path: Path) -> None:
    volume = format_volume(tmp_path / "disk.img", "64MiB")
    if not has_loop_devices():
        without("a file under a loop device", NO_LOOP, tmp_path)
        return
    with loop_device(volume) as device:
        with connect() as con, pytest.raises(duckdb.Error, match="is a loop device over it"):
            con.execute(f"ATTACH '{url(volume)}' AS d")
        done = subprocess.run(
            [BINARY, "nvme", "format", volume, "--force"], capture_output=True, check=False
        )
        assert done.returncode and b"losetup -d" in done.stderr, done.stderr
        with attached(device) as con:
            grow(con, 20000)
            with pytest.raises(duckdb.Error, match="or this one by another name"):
                con.execute(f"ATTACH '{url(volume, 'other')}' AS other (READ_ONLY)")
    with attached(volume) as con:
        holds(con, 20000)
        with (
            loop_device(volume) as device,
            pytest.raises(duckdb.Error, match="or this one by another name"),
        ):
            con.execute(f"ATTACH '{url(device, 'other')}' AS other")


def test_what_cannot_be_tested_is_told(tmp_path: Path) -> None:
    """Without a PATH programs are missing: a test passes then, and what it left is told."""
    test = f"{__file__}::{test_what_is_mounted_is_left_alone_by_force_too.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    command += ["--basetemp", str(tmp_path / "of-the-other")]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "a mounted device: NOT RUN: no loop device" in done.stdout, done.stdout
