"""Whether one of two measured series is larger, where each run of one has a run of the other.

Mean, standard error, and the paired t-test of Student. Pure; the distribution is computed here,
since nothing else in the project needs a library of statistics.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

STEPS_MAX = 300
CLOSE = 1e-14
TINY = 1e-300


@dataclass(frozen=True)
class Series:
    """What is told of one series."""

    mean: float
    standard_error: float


def series(values: Sequence[float]) -> Series:
    """Mean and standard error; of one value the error is not known (nan)."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Series(mean, math.nan)
    return Series(mean, statistics.stdev(values) / math.sqrt(len(values)))


def p_less(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The chance of such differences if ours were not less than theirs (one-sided).

    Small when ours is less. Values at the same place belong together; two pairs at least.
    """
    if len(ours) != len(theirs) or len(ours) < 2:
        raise ValueError(f"{len(ours)} and {len(theirs)} values are no pairs")
    gaps = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    gap = series(gaps)
    if gap.standard_error == 0:
        return 0.5 if gap.mean == 0 else float(gap.mean > 0)
    return t_below(gap.mean / gap.standard_error, len(gaps) - 1)


def t_below(t: float, degrees: int) -> float:
    """The chance that a value of Student's distribution lies below `t`."""
    tail = beta_part(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return tail if t < 0 else 1 - tail


def beta_part(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, from 0 at x = 0 to 1 at x = 1."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges quickly on this side of the bulk; the other one is its mirror.
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_part(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * fraction(a, b, x) / a


def fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by the method of Lentz."""

    def kept(value: float) -> float:
        return value if abs(value) > TINY else TINY

    c, d = 1.0, 1 / kept(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, STEPS_MAX):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / kept(1 + term * d)
            c = kept(1 + term / c)
            result *= c * d
        if abs(c * d - 1) < CLOSE:
            break
    return result
