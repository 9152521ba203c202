"""Devices that fail or lose their power under ATTACH, at any command: nothing is lost."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from nvme import format_volume, has_loop_devices, loop_device, not_run, penstock

HERE = Path(__file__).resolve().parent
# Power cuts of a seed; with three ways to a file 10,200 together.
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
    failure: str, how: str, step: int, io: str, library: Path, tmp_path: Path
) -> None:
    volume = format_volume(tmp_path / "disk.img", "16MiB")
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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("io", ["file", "direct", "uring"])
def test_whatever_a_power_cut_leaves_is_what_was_committed(
    io: str, seed: int, tmp_path: Path
) -> None:
    # In memory: what is flushed has to reach no disk for this, the record tells.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
        volume = format_volume(Path(directory) / "disk.img", "32MiB")
        recorder = compiled("recorded_disk", tmp_path)
        told = output(recorder, "cut_disk.py", volume, io, f"{seed}", f"{CUTS}")
    judge(told)


def judge(told: str) -> None:
    """What cut_disk.py tells: much was done, and there were second logs."""
    events, flushes, trims, replays = map(int, told.split())
    assert events > 300 and flushes > 100 and trims > 10, told
    assert replays > 10, "cuts after which two logs were made one"


@pytest.mark.parametrize("io", ["file", "direct", "uring"])
def test_whatever_a_power_cut_leaves_of_a_block_device_too(io: str, tmp_path: Path) -> None:
    if not has_loop_devices():
        not_run(f"test_nvme_failing: power cuts of a block device by {io}")
        return
    file = tmp_path / "disk.img"
    with file.open("wb") as made:
        made.truncate(32 << 20)
    recorder = compiled("recorded_disk", tmp_path)
    with loop_device(file) as device:
        penstock("format", device)
        told = output(recorder, "cut_disk.py", device, io, "5", f"{CUTS // 4}", file)
    judge(told)
