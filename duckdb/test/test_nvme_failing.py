"""A device that fails under ATTACH, at each command in turn: a clear error, and nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvme import format_volume

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk that fails."""
    made = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", f"{made}"]
    subprocess.run([*command, f"{HERE}/failing_disk.c", "-ldl"], check=True)
    return made


def output(library: Path, program: str, *arguments: str | Path) -> str:
    """What a program prints that runs on the disk that fails."""
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


@pytest.mark.parametrize(
    ("failure", "how", "step"),
    [("EIO", "once", 1), ("ENODEV", "lasting", 3), ("ENOSPC", "lasting", 7), ("EROFS", "once", 7)],
)
def test_nothing_is_lost_whichever_command_fails(
    failure: str, how: str, step: int, library: Path, tmp_path: Path
) -> None:
    volume = format_volume(tmp_path / "disk.img", "16MiB")
    told = output(library, "failing_disk.py", volume, failure, how, str(step))
    assert int(told) > 40, "commands that failed"


def test_what_spills_to_a_disk_that_fails_is_right_or_an_error(
    library: Path, tmp_path: Path
) -> None:
    volume = format_volume(tmp_path / "disk.img", "1GiB")
    told = output(library, "failing_spill.py", volume, "8")
    assert int(told) >= 4, "those in which all commands failed from some point on"
