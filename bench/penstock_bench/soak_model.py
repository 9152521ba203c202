"""What objects may be while they are written, and when a process has grown: for `soak`.

Pure but for `sample`.
A write that was granted is there whole, one that failed is there whole or not at all, and nothing
else ever is. What was seen once is not older the next time.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
RSS_GROWTH, RSS_SLACK_BYTES = 1.3, 16 * MIB
FDS_SLACK = 32
_NOISE = random.Random(20261120).randbytes(20 * MIB)  # noqa: S311 - the same on every run


@dataclass(frozen=True)
class Version:
    """What was written: its bytes follow from these two."""

    seed: int
    size: int

    def content(self) -> bytes:
        """Unlike every other version's from its first byte on."""
        head = f"{self.seed:016x}".encode()[: self.size]
        begin = self.seed * 7919 % MIB
        return head + _NOISE[begin : begin + self.size - len(head)]


Fits = Callable[["Version | None"], bool]


@dataclass
class Model:
    """What each key may hold; ``None`` is no object.

    Several threads may look, one writes. Where the writes go past the gateway that is read
    through, what was replaced may be read for `stale_s` more.
    """

    may_be: dict[str, set[Version | None]] = field(default_factory=dict)
    stale_s: float = 0.0
    now_s: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looks: dict[str, list[set[Version | None]]] = field(default_factory=dict)
    _under_way: dict[str, set[Version | None]] = field(default_factory=dict)
    _replaced: dict[str, list[tuple[float, Version | None]]] = field(default_factory=dict)

    def of(self, key: str) -> set[Version | None]:
        """All that the key may hold."""
        return self.may_be.setdefault(key, {None})

    def begins(self, key: str, version: Version | None) -> None:
        """A write is about to be sent: whoever reads from now on may find it."""
        with self._lock:
            self._under_way.setdefault(key, set()).add(version)
            for seen in self._looks.get(key, []):
                seen.add(version)

    def wrote(self, key: str, version: Version | None, granted: bool) -> None:
        """A write ended; one that failed may have been done."""
        with self._lock:
            before = self.of(key)
            self.may_be[key] = {version} if granted else before | {version}
            self._under_way.pop(key, None)
            if granted and self.stale_s:
                until = self.now_s() + self.stale_s
                gone = self._replaced.setdefault(key, [])
                gone += [(until, it) for it in before - {version}]

    def saw(self, key: str, fits: Fits, begun_s: float | None = None) -> bool:
        """A read was answered: whether with something that may be; it is known then.

        `begun_s` is when it was sent.
        """
        with self._lock:
            fitting = {version for version in self.of(key) if fits(version)}
            if self.stale_s:
                # What is read may be what was: it tells nothing of what the key holds now.
                begun_s = self.now_s() if begun_s is None else begun_s
                replaced = [it for it in self._replaced.get(key, []) if it[0] >= begun_s]
                self._replaced[key] = replaced
                return bool(fitting) or any(fits(version) for _, version in replaced)
            if fitting:
                self.may_be[key] = fitting
            return bool(fitting)

    @contextmanager
    def looking(self, key: str) -> Iterator[set[Version | None]]:
        """All that a read may find which others' writes go beside: the set grows meanwhile."""
        with self._lock:
            seen = set(self.of(key)) | self._under_way.get(key, set())
            self._looks.setdefault(key, []).append(seen)
        try:
            yield seen
        finally:
            with self._lock:
                looks = self._looks[key]
                del looks[next(at for at, it in enumerate(looks) if it is seen)]

    def listed(self, names: set[str]) -> bool:
        """A list was answered: whether all are in it that must be, and none that cannot be."""
        must = {key for key, held in self.may_be.items() if None not in held}
        may = {key for key, held in self.may_be.items() if held != {None}}
        return must <= names <= may


@dataclass(frozen=True)
class Sample:
    """The gateway's process at one moment."""

    rss_bytes: int
    fds: int


def sample(pid: int) -> Sample:
    """What a process holds now."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = int(status.split("VmRSS:")[1].split()[0]) * KIB
    return Sample(rss, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def growth(samples: Sequence[Sample]) -> list[str]:
    """What grew: the last quarter of a run against its second, the first being the warm-up."""
    quarter = len(samples) // 4
    if quarter == 0:
        return ["too few samples to tell of growth"]
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]

    def medians(name: str) -> tuple[float, float]:
        before, after = ([getattr(one, name) for one in part] for part in (early, late))
        return statistics.median(before), statistics.median(after)

    grown = []
    before, after = medians("rss_bytes")
    if after > before * RSS_GROWTH + RSS_SLACK_BYTES:
        grown.append(f"memory grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB")
    before, after = medians("fds")
    if after > before + FDS_SLACK:
        grown.append(f"descriptors grew from {before:.0f} to {after:.0f}")
    return grown
