"""The record of what was done to a disk (recorded_disk.c), and what power cuts leave of it."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nvme import BINARY

SECTOR_BYTES = 512
# Of an event: its kind, and two numbers.
HEAD = struct.Struct("=3Q")
# What a trim leaves: a device gives the old bytes (as if the trim were lost), zeros, or others.
LEFT_BY_TRIMS = (b"\x00", b"\xdb")
# Of so many copies one is compared with a whole image.
LAID_OF_IMAGE = 50
# A table of a volume: how it begins, and where the number of its files stands (table.rs).
TABLE_BEGIN, TABLE_COUNT_AT, TABLE_HEADER_BYTES = b"PENSTOCK", 52, 64


@dataclass(frozen=True)
class Write:
    """Bytes that were written."""

    offset: int
    bytes: bytes

    def put(self, image: bytearray) -> None:
        """Has it reach the disk."""
        image[self.offset : self.offset + len(self.bytes)] = self.bytes

    def sectors(self) -> Iterator[Write]:
        """What no power cut divides."""
        for at in range(0, len(self.bytes), SECTOR_BYTES):
            yield Write(self.offset + at, self.bytes[at : at + SECTOR_BYTES])


class Trim(Write):
    """Blocks that were trimmed, and what they hold since."""


@dataclass(frozen=True)
class Flush:
    """What came before the event `until` is durable."""

    until: int


@dataclass(frozen=True)
class Mark:
    """What a program told, by two numbers of its own."""

    which: int
    count: int


Event = Write | Flush | Mark


def parse(record: bytes) -> Iterator[Event]:
    """The events of a record (recorded_disk.c)."""
    at = trims = 0
    while at < len(record):
        kind, first, second = HEAD.unpack_from(record, at)
        at += HEAD.size
        match chr(kind):
            case "W":
                yield Write(first, record[at : at + second])
                at += second
            case "T":
                yield Trim(first, LEFT_BY_TRIMS[trims % len(LEFT_BY_TRIMS)] * second)
                trims += 1
            case "F":
                yield Flush(first)
            case "M":
                yield Mark(first, second)


def names(event: Event) -> set[str] | None:
    """The files of the table that was written; none if it was something else."""
    if not isinstance(event, Write) or not event.bytes.startswith(TABLE_BEGIN):
        return None

    def number(at: int, size: int) -> int:
        return int.from_bytes(event.bytes[at : at + size], "little")

    found, at = set(), TABLE_HEADER_BYTES
    for _ in range(number(TABLE_COUNT_AT, 4)):
        length = number(at, 2)
        found.add(event.bytes[at + 2 : at + 2 + length].decode())
        # Its size, and its extents of 16 bytes.
        at += 2 + length + 8
        at += 4 + 16 * number(at, 4)
    return found


def with_two_logs(events: list[Event]) -> list[int]:
    """Before which events a database has a second log, as the last table tells."""
    found, is_there = [], False
    for at, event in enumerate(events):
        if is_there:
            found.append(at)
        if (files := names(event)) is not None:
            is_there = any(name.endswith(".wal.checkpoint") for name in files)
    return found


class History:
    """What was done to a disk, and what is flushed of it at events that come later and later."""

    def __init__(self, events: list[Event]) -> None:
        self.told: dict[int, int] = {}
        self.events = events
        self.at = 0
        self.flushed = 0

    def go_on(self, at: int) -> list[Write]:
        """Goes on to before the event `at`; gives what became durable."""
        durable: list[Write] = []
        for event in self.events[self.at : at]:
            match event:
                case Flush(until) if until > self.flushed:
                    durable += self.writes(until)
                    self.flushed = until
                case Mark(which, count):
                    self.told[which] = count
        self.at = at
        return durable

    def writes(self, until: int) -> list[Write]:
        """Since the last flush."""
        return [event for event in self.events[self.flushed : until] if isinstance(event, Write)]

    def kept(self, chance: random.Random) -> list[Write]:
        """What a cut leaves of what was not flushed."""
        how = chance.choice(["all", "none", "writes", "sectors"])
        kept = []
        for write in self.writes(self.at):
            if how == "all" or (how == "writes" and chance.random() < 0.5):
                kept.append(write)
            if how == "sectors":
                kept += [sector for sector in write.sectors() if chance.random() < 0.5]
        return kept


class Disk(History):
    """What a cut leaves of a whole disk."""

    def __init__(self, start: bytes, events: list[Event]) -> None:
        super().__init__(events)
        self.durable = bytearray(start)
        self.durable_writes = 0

    def go_on(self, at: int) -> list[Write]:
        """As that of a history; what became durable has reached the disk."""
        durable = super().go_on(at)
        for write in durable:
            write.put(self.durable)
        self.durable_writes += len(durable)
        return durable

    def state(self, kept: list[Write]) -> tuple[int, tuple[Write, ...]]:
        """What a cut leaves that left this, in short: where two are equal, so are their images.

        The first so many writes, and after them not all: a cut that keeps all that was written
        leaves what one leaves that comes after the flush and keeps nothing.
        """
        whole = 0
        for write, also in zip(self.writes(self.at), kept, strict=False):
            if write != also:
                break
            whole += 1
        return self.durable_writes + whole, tuple(kept[whole:])

    def image(self, kept: list[Write]) -> bytearray:
        """The whole disk after a cut that left this."""
        image = bytearray(self.durable)
        for write in kept:
            write.put(image)
        return image


class Copy:
    """A file that holds what a cut leaves; only what differs from one to the next is written."""

    def __init__(self, path: Path, disk: Disk, recorder: Recorder) -> None:
        self.path = path
        path.write_bytes(disk.durable)
        with path.open("r+b") as file:
            # Thousands of sectors are laid: without a call for each.
            self._bytes = mmap.mmap(file.fileno(), 0)
        self.recorder = recorder
        self.laid = 0
        self._disk = disk
        self._flushed = disk.flushed
        self._changed: list[Write] = []

    def lay(self, kept: list[Write]) -> None:
        """Makes it what a cut leaves that comes now."""
        durable = self._disk.events[self._flushed : self._disk.flushed]
        self._flushed = self._disk.flushed
        whole = memoryview(self._disk.durable)
        for write in (*self._changed, *durable):
            if isinstance(write, Write):
                part = slice(write.offset, write.offset + len(write.bytes))
                self._bytes[part] = whole[part]
        for write in kept:
            self._bytes[write.offset : write.offset + len(write.bytes)] = write.bytes
        self._changed = list(kept)
        if self.laid % LAID_OF_IMAGE == 0:
            laid = self.path.read_bytes()
            assert laid == self._disk.image(kept), "what is laid is what a cut leaves"
        self.laid += 1
        self.recorder.watch(self.path)

    def events(self) -> list[Event]:
        """What was done to it since it was laid, which the next time is undone."""
        found = self.recorder.events()
        self._changed += [event for event in found if isinstance(event, Write)]
        return found


class Recorder:
    """The library that keeps a record of what is written to a file."""

    def __init__(self, library_path: str, record: Path) -> None:
        self.library = ctypes.CDLL(library_path)
        self.library.recorded_disk_begin.argtypes = [ctypes.c_char_p] * 2
        self.library.recorded_disk_mark.argtypes = [ctypes.c_uint64] * 2
        self._record = record
        self._grown: tuple[int, list[Event]] = (0, [])

    def watch(self, path: Path) -> None:
        """Begins a new record, of this file."""
        self._grown = (0, [])
        begun = self.library.recorded_disk_begin(os.fsencode(path), os.fsencode(self._record))
        assert begun == 0, os.strerror(begun)

    def events(self) -> list[Event]:
        """What was done to the file since."""
        mine = list(parse(self._record.read_bytes()))
        at, grown = self._grown
        return [*mine[:at], *later(grown, at), *later(mine[at:], len(grown))]

    def grow(self, volume: Path, under: Path, bytes_more: int) -> None:
        """Enlarges the file, and has the volume take the room, by a process with its own record."""
        at = len(self.events())
        os.truncate(under, under.stat().st_size + bytes_more)
        if under != volume:
            subprocess.run(["losetup", "--set-capacity", f"{volume}"], check=True)
        record = self._record.with_suffix(".grown")
        told = {"RECORDED_DISK_FILE": f"{volume}", "RECORDED_DISK_RECORD": f"{record}"}
        command = [f"{BINARY}", "nvme", "grow", f"{volume}", "--io", "file"]
        subprocess.run(command, env={**os.environ, **told}, check=True, capture_output=True)
        grown = list(parse(record.read_bytes()))
        assert {type(event) for event in grown} >= {Write, Flush}, grown
        self._grown = (at, grown)


def later(events: list[Event], count: int) -> list[Event]:
    """The same behind so many others."""
    return [
        replace(event, until=event.until + count) if isinstance(event, Flush) else event
        for event in events
    ]
