"""What objects may be while they are written, and when a process has grown: for `soak`.

Pure but for `sample`.
A write that was granted is there whole, one that failed is there whole or not at all, and nothing
else ever is.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
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


@dataclass
class Model:
    """What each key may hold; ``None`` is no object."""

    may_be: dict[str, set[Version | None]] = field(default_factory=dict)

    def of(self, key: str) -> set[Version | None]:
        """All that the key may hold."""
        return self.may_be.setdefault(key, {None})

    def wrote(self, key: str, version: Version | None, granted: bool) -> None:
        """A write ended; one that failed may have been done."""
        self.may_be[key] = {version} if granted else self.of(key) | {version}

    def saw(self, key: str, fits: Callable[[Version | None], bool]) -> bool:
        """A read was answered: whether with something that may be; it is known then."""
        fitting = {version for version in self.of(key) if fits(version)}
        if fitting:
            self.may_be[key] = fitting
        return bool(fitting)

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
