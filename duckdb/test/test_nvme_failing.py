"""Devices that fail or lose their power under ATTACH, at any command: nothing is lost."""

from __future__ import annotations

import os
import platform
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nvme import format_volume, has_loop_devices, loop_device, not_run, penstock
from recorded_disk import SECTOR_BYTES, Disk, Event, Flush, Mark, Trim, Write

HERE = Path(__file__).resolve().parent
# Power cuts of a seed; with three ways to a file 10,200 together, which leave about 6,900 states of
# the disk.
CUTS = 850
SEEDS = range(1, 5)


def compiled(name: str, into: Path) -> Path:
    """A disk of our own, to be loaded before the C library."""
    made = into / f"{name}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", f"{made}"]
    subprocess.run([*command, f"{HERE}/{name}.c", "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk that fails."""
    return compiled("failing_disk", tmp_path_factory.mktemp("disk"))


def output(library: Path, program: str, *arguments: str | Path) -> str:
    """What a program prints that runs on such a disk."""
    done = subprocess.run(
        [sys.executable, HERE / program, library, *arguments],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def can_inject() -> bool:
    """Whether an entry of a ring can be given a result (failing_disk.c)."""
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= (6, 10)


# Before Linux 6.10 the calls past the page cache have to do.
RING = "uring" if can_inject() else "direct"


@pytest.mark.parametrize("io", ["file", RING])
@pytest.mark.parametrize(
    ("failure", "how", "step"),
    [("EIO", "once", 1), ("ENODEV", "lasting", 3), ("ENOSPC", "lasting", 7), ("EROFS", "once", 7)],
)
def test_nothing_is_lost_whichever_command_fails(
    failure: str, how: str, step: int, io: str, library: Path, memory: Path
) -> None:
    volume = format_volume(memory / "disk.img", "16MiB")
    told = output(library, "failing_disk.py", volume, failure, how, str(step), io)
    assert int(told) > 40, "commands that failed"


@pytest.mark.parametrize("io", sorted({"direct", RING}))
def test_what_spills_to_a_disk_that_fails_is_right_or_an_error(
    io: str, library: Path, tmp_path: Path
) -> None:
    volume = format_volume(tmp_path / "disk.img", "1GiB")
    told = output(library, "failing_spill.py", volume, "8", io)
    assert int(told) >= 4, "those in which all commands failed from some point on"


def test_cuts_are_such_that_a_plain_file_does_not_outlive_all(tmp_path: Path) -> None:
    recorder = compiled("recorded_disk", tmp_path)
    lost, cuts = map(int, output(recorder, "cut_file.py", tmp_path / "plain.db", "1").split())
    assert 0 < lost < cuts / 2, f"{lost} of {cuts}"


def test_cuts_of_one_state_leave_one_image() -> None:
    chance = random.Random(3)
    images: dict[object, bytes] = {}
    cuts = 0
    for _ in range(100):
        images.clear()
        # Few sectors, so that many cuts leave the same, and some the same by other writes.
        events: list[Event] = []
        for number in range(30):
            if chance.random() < 0.2:
                events.append(Flush(chance.randrange(len(events) + 1)))
            sectors = chance.randrange(1, 4)
            kind = chance.choice([Write, Write, Trim])
            written = kind(chance.randrange(8) * SECTOR_BYTES, bytes([number]) * SECTOR_BYTES)
            events += [replace(written, bytes=written.bytes * sectors), Mark(0, number)]
        disk = Disk(bytes(16 * SECTOR_BYTES), events)
        for at in sorted(chance.randrange(len(events) + 1) for _ in range(60)):
            disk.go_on(at)
            kept = disk.kept(chance)
            image = bytes(disk.image(kept))
            assert images.setdefault(disk.state(kept), image) == image, f"{events} cut before {at}"
            cuts += 1
        cuts -= len(images)
    assert cuts > 1000, "cuts that left what one before them had left"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("io", ["file", "direct", "uring"])
def test_whatever_a_power_cut_leaves_is_what_was_committed(
    io: str, seed: int, tmp_path: Path, memory: Path
) -> None:
    volume = format_volume(memory / "disk.img", "32MiB")
    recorder = compiled("recorded_disk", tmp_path)
    told = output(recorder, "cut_disk.py", volume, io, f"{seed}", f"{CUTS}")
    judge(told, CUTS)


def judge(told: str, cuts: int) -> None:
    """What cut_disk.py tells: much was done, and there were second logs."""
    events, flushes, trims, replays, states = map(int, told.split())
    assert events > 300 and flushes > 100 and trims > 10, told
    assert replays > 10, "cuts after which two logs were made one"
    assert states > cuts / 3, f"{states} states of the disk by {cuts} cuts"


@pytest.mark.parametrize("io", ["file", "direct", "uring"])
def test_whatever_a_power_cut_leaves_of_a_block_device_too(
    io: str, tmp_path: Path, memory: Path
) -> None:
    if not has_loop_devices():
        not_run(f"test_nvme_failing: power cuts of a block device by {io}")
        return
    file, cuts = memory / "disk.img", CUTS // 4
    with file.open("wb") as made:
        made.truncate(32 << 20)
    recorder = compiled("recorded_disk", tmp_path)
    with loop_device(file) as device:
        penstock("format", device)
        told = output(recorder, "cut_disk.py", device, io, "5", f"{cuts}", file)
    judge(told, cuts)
