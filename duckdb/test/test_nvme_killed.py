"""kill -9 of a DuckDB process at any moment: what was committed is there, what was not is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import nvme_worker as worker
from nvme import format_volume, has_loop_devices, loop_device, not_run, penstock

KILLS = 200


class Victim:
    """Processes that write to a database one after the other, each killed by the next."""

    def __init__(self, volume: Path, **parameters: str) -> None:
        command = [sys.executable, worker.__file__, str(volume)]
        command += [f"{key}={value}" for key, value in parameters.items()]
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.told = dict.fromkeys(worker.TABLES, 0)
        self.commits = 0

    def live_and_die(self, chance: random.Random) -> None:
        """One process: it finds what the one before had committed, and is killed at its work."""
        assert self.server.stdin and self.server.stdout
        self.server.stdin.write(" ".join(map(str, self.told.values())) + "\n")
        process, commits_left, killer = 0, -1, None
        for line in self.server.stdout:
            name, _, told = line.strip().partition(" ")
            if name == "ended":
                break
            if name == "pid":
                process = int(told)
            elif name == "ready":
                commits_left = chance.randrange(1, 20)
            else:
                assert name in self.told, line.encode().decode("unicode_escape")
                self.told[name] = int(told)
                self.commits += commits_left >= 0
                commits_left -= 1
            if commits_left == 0 and not killer:
                # A moment later it may be in the middle of anything.
                moment = chance.random() * 0.005
                killer = threading.Timer(moment, os.kill, (process, signal.SIGKILL))
                killer.start()
        assert killer, "the process ended by itself"
        killer.join()

    def stop(self) -> None:
        """Ends the server of processes."""
        self.server.communicate()


def kill_often(volume: Path, kills: int, **parameters: str) -> None:
    """Kills, and looks at what is left at the end."""
    with worker.attach(volume, **parameters) as con:
        worker.prepare(con)
    victim = Victim(volume, **parameters)
    try:
        chance = random.Random(5)
        for _ in range(kills):
            victim.live_and_die(chance)
    finally:
        victim.stop()
    with worker.attach(volume, **parameters) as con:
        worker.verify(con, victim.told)
    assert victim.commits > kills
    assert "sound" in penstock("check", volume)


def test_what_was_committed_outlives_two_hundred_kills(memory: Path) -> None:
    kill_often(format_volume(memory / "disk.img", "64MiB"), KILLS)


def test_on_a_block_device_too(memory: Path) -> None:
    file = memory / "disk.img"
    if not has_loop_devices():
        # Without loop devices the other ways to a file take their place.
        not_run("test_nvme_killed: a block device")
        for io in ("direct", "file"):
            kill_often(format_volume(memory / io, "64MiB"), KILLS // 2, io=io)
        return
    with file.open("wb") as made:
        made.truncate(64 << 20)
    with loop_device(file) as device:
        penstock("format", device)
        kill_often(device, KILLS)
