"""What a killed bench leaves is taken away by the next one, and nothing of anybody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock_bench import devices, scratch
from penstock_bench.config import BENCH

BENCHES = """
import sys
from pathlib import Path
from penstock_bench import devices, scratch
with scratch.held(Path(sys.argv[1])) as folder:
    with devices.made(sys.argv[2], folder, 1 << 20) as device:
        print(folder, device, flush=True)
        sys.stdin.read()
"""


def bench(out: Path, kind: str) -> tuple[subprocess.Popen[str], Path, Path]:
    """A bench that lives until its input ends; its folder and its device."""
    child = subprocess.Popen(
        [sys.executable, "-c", BENCHES, out, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(BENCH)},
    )
    assert child.stdout
    folder, device = child.stdout.readline().split()
    return child, Path(folder), Path(device)


def works(kind: str, folder: Path) -> bool:
    """Whether a device of a kind can be made here: a container may have none."""
    try:
        with devices.made(kind, folder, 1 << 20):
            return True
    except (devices.DeviceError, OSError):
        return False


def test_the_next_bench_frees_what_a_killed_one_left(tmp_path: Path) -> None:
    for kind in (kind for kind in devices.OURS if works(kind, tmp_path / "try")):
        killed, left, device = bench(tmp_path, kind)
        living, kept, other = bench(tmp_path, kind)
        assert left.exists(), "both lived"
        killed.kill()
        assert killed.wait() == -signal.SIGKILL
        assert left.exists() and device.exists()
        with scratch.held(tmp_path) as own:
            assert not left.exists()
            assert is_free(kind, device), device
            assert kept.exists() and other.exists() and own.exists()
            assert not is_free(kind, other)
        assert not own.exists()
        living.communicate("")
        assert living.returncode == 0 and not kept.exists()


def is_free(kind: str, device: Path) -> bool:
    """Whether nobody has a device any more."""
    if kind == "loop":
        return device not in [it for it, _ in scratch.loops(scratch.BLOCK)]
    return not device.exists()


def test_a_loop_device_is_known_by_its_file_also_when_that_is_gone(tmp_path: Path) -> None:
    for name, file in (("loop1", "/b/devices/x/loop.img"), ("loop7", "/b/gone.img (deleted)")):
        told = tmp_path / name / "loop"
        told.mkdir(parents=True)
        (told / "backing_file").write_text(f"{file}\n")
    (tmp_path / "loop2").mkdir()
    assert scratch.loops(tmp_path) == [
        (Path("/dev/loop1"), Path("/b/devices/x/loop.img")),
        (Path("/dev/loop7"), Path("/b/gone.img")),
    ]


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    table = "36 35 98:0 /a /mnt/b\\040c rw - ext4 /dev/loop0 rw\n37 36 0:3 / /proc rw - proc p rw\n"
    assert scratch.mounts(table) == [Path("/mnt/b c"), Path("/proc")]


def test_a_mark_of_another_device_of_that_number_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{devices.ZRAM_MARK}0").write_text("another boot 1")
    (tmp_path / f"{devices.ZRAM_MARK}1").write_text("")
    assert devices.zram_marks(tmp_path) == []
