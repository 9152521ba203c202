"""Drives the virtual machine of test-nvme.sh: lets it run, pulls devices out of it, stops it hard.

Usage: machine.py exam|FIRST-LAST SHARED -- QEMU ARGUMENT...

`exam` lets the guest do its work; numbers are those of the stops in the middle of it.

The guest tells by its second serial line what it does, and is answered through QEMU's control
socket. Decides when the machine is stopped, and whether what it had said is there afterwards; the
work itself, and comparing every row after a stop, is done by DuckDB (commits.sh).
"""

from __future__ import annotations

import atexit
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IO = ("passthrough", "ioctl", "uring")
SERIALS = ("lba512", "lba4096")


class Machine:
    """A running QEMU; each writes its trace into a file of its own."""

    started = 0

    def __init__(self, command: list[str], shared: Path) -> None:
        self._socket = shared.parent / "control"
        self._socket.unlink(missing_ok=True)
        Machine.started += 1
        trace = f"{shared.parent}/trace.{Machine.started}"
        control = f"unix:{self._socket},server=on,wait=off"
        with (shared.parent / "qemu.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "-serial", "stdio", "-qmp", control, "-D", trace],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        atexit.register(self.kill)

    def lines(self) -> Iterator[list[str]]:
        """What the guest says, in words, until the machine ends."""
        assert self._process.stdout
        for line in self._process.stdout:
            if words := line.split():
                yield words

    def control(self, command: str, **arguments: str | int) -> None:
        """One command to QEMU, whose answer is waited for."""
        with socket.socket(socket.AF_UNIX) as plug, plug.makefile("rw") as wire:
            plug.connect(str(self._socket))
            wire.readline()
            asked: dict[str, Any] = {"execute": command}
            if arguments:
                asked["arguments"] = arguments
            for order in ({"execute": "qmp_capabilities"}, asked):
                wire.write(json.dumps(order) + "\n")
                wire.flush()
                while "return" not in (answer := json.loads(wire.readline())):
                    if "error" in answer:
                        sys.exit(f"{command}: {answer['error']['desc']}")

    def throttle(self, name: str, bytes_per_s: int) -> None:
        """Limits what a drive moves; 0 is without limit."""
        others = dict.fromkeys(("bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"), 0)
        self.control("block_set_io_throttle", device=name, bps=bytes_per_s, **others)

    def kill(self) -> None:
        """As if the power went: nothing of the guest goes on."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Until it has ended by itself."""
        self._process.wait()


def exam(command: list[str], shared: Path) -> None:
    """Lets the guest do its work; does to the devices what it asks for."""
    machine = Machine([*command, "-no-reboot"], shared)
    for words in machine.lines():
        match words:
            case ["pull", name]:
                machine.control("device_del", id=f"c-{name}")
            case ["hang", name]:
                # The second read of 4 KiB waits for 8 s. Longer, and QEMU would wait for it within
                # a reset and do nothing else meanwhile.
                machine.throttle(name, bytes_per_s=512)
            case ["free", name]:
                machine.throttle(name, bytes_per_s=0)
    machine.wait()


class Book:
    """What the guest has said to be durable on each device."""

    def __init__(self) -> None:
        self.said: dict[str, int] = {}
        self.count = 0

    def note(self, words: list[str]) -> None:
        """Takes a line; ends the program where something was lost."""
        match words:
            case ["said", serial, number]:
                self.said[serial] = int(number)
                self.count += 1
            case ["next", serial, number]:
                said = self.said.get(serial, -1)
                if int(number) <= said:
                    sys.exit(f"{serial}: {said} was said to be durable, the next is {number}")
            case ["failed", *rest]:
                sys.exit(f"the guest failed: {' '.join(rest)}")


def stops(numbers: range, command: list[str], shared: Path) -> None:
    """Stops the machine in the middle of its commits: by SIGKILL, or by a reset, in turns."""
    book, machine = Book(), None
    for number in numbers:
        (shared / "io").write_text(IO[number % len(IO)])
        began = time.monotonic()
        machine = machine or Machine(command, shared)
        # A checkpoint comes every few commits: stops before and after one.
        wanted = 3 + 7 * number % 13
        booted = False
        for words in machine.lines():
            booted = booted or words == ["boot"]
            book.note(words)
            wanted -= booted and words[0] == "said"
            if wanted == 0:
                break
        else:
            sys.exit("the machine ended by itself")
        how = "SIGKILL" if number % 2 else "reset"
        seconds = time.monotonic() - began
        told = f"stop {number + 1} by {how} after {seconds:.0f} s: {book.count} commits so far"
        print(told, file=sys.stderr)
        if number % 2:
            machine.kill()
            for words in machine.lines():
                # The last line may have been cut.
                if len(words) == 3:
                    book.note(words)
            machine = None
        else:
            machine.control("system_reset")
    if machine:
        machine.kill()
    images = [shared.parent / f"{serial}.img" for serial in SERIALS]
    check = [f"{shared}/commits.sh", "check", *map(str, images), "direct"]
    done = subprocess.run(check, check=True, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        book.note(line.split())
    traces = shared.parent.glob("trace.*")
    flushes = sum(trace.read_text().count("pci_nvme_flush_ns") for trace in traces)
    print(
        f"{len(numbers)} stops, {book.count} commits, nothing lost; {flushes} flushes",
        file=sys.stderr,
    )
    # A flush for each record of the log that was said to be durable, at least.
    if flushes < book.count:
        sys.exit(f"{book.count} commits were said to be durable with {flushes} flushes")


def main() -> None:
    """Entry point."""
    what, shared, _, *command = sys.argv[1:]
    # Whoever ends this program ends the machine with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it took too long, or was given up"))
    match what:
        case "exam":
            exam(command, Path(shared))
        case _:
            first, last = map(int, what.split("-"))
            stops(range(first, last + 1), command, Path(shared))


main()
