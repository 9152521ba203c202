"""Drives the virtual machine of test-nvme.sh: lets it run, pulls devices out of it, stops it hard.

Usage: machine.py exam|stops SHARED KILLED -- QEMU ARGUMENT...

The guest tells by its second serial line what it does, and is answered through QEMU's control
socket. Decides when the machine is stopped, and whether what it had said is there afterwards; the
work itself is done by the test program KILLED (crates/device/tests/killed.rs).
"""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STOPS = 10
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

    def control(self, command: str, **arguments: str) -> None:
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

    def kill(self) -> None:
        """As if the power went: nothing of the guest goes on."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Until it has ended by itself."""
        self._process.wait()


def exam(command: list[str], shared: Path) -> None:
    """Lets the guest do its work; pulls out the devices that it asks for."""
    machine = Machine([*command, "-no-reboot"], shared)
    for words in machine.lines():
        if words[0] == "pull":
            machine.control("device_del", id=f"c-{words[1]}")
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
                self.found(serial, int(number))
            case ["failed", *rest]:
                sys.exit(f"the guest failed: {' '.join(rest)}")

    def found(self, serial: str, following: int) -> None:
        """The number after the last that is there."""
        said = self.said.get(serial, -1)
        if following <= said:
            sys.exit(f"{serial}: {said} was said to be durable, there are {following} records")


def stops(command: list[str], shared: Path, killed: str) -> None:
    """Stops the machine in the middle of its commits: by SIGKILL, or by a reset, in turns."""
    book, machine = Book(), None
    for number in range(STOPS):
        (shared / "io").write_text(IO[number % len(IO)])
        machine = machine or Machine(command, shared)
        # Twelve commits go by between two checkpoints of a log: stops before and after one.
        wanted = 4 + 7 * number % 29
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
        print(f"stop {number + 1} by {how}: {book.count} commits so far", file=sys.stderr)
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
    for serial in SERIALS:
        check = [killed, "check", str(shared.parent / f"{serial}.img"), "direct"]
        book.found(serial, int(subprocess.run(check, check=True, capture_output=True).stdout))
    traces = shared.parent.glob("trace.*")
    flushes = sum(trace.read_text().count("pci_nvme_flush_ns") for trace in traces)
    print(f"{STOPS} stops, {book.count} commits, nothing lost; {flushes} flushes", file=sys.stderr)
    # A flush for each record of the log that was said to be durable, at least.
    if flushes < book.count:
        sys.exit(f"{book.count} commits were said to be durable with {flushes} flushes")


def main() -> None:
    """Entry point."""
    what, shared, killed, _, *command = sys.argv[1:]
    match what:
        case "exam":
            exam(command, Path(shared))
        case "stops":
            stops(command, Path(shared), killed)
        case _:
            sys.exit(__doc__)


main()
