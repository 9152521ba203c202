"""The paired t-test against values of printed tables."""

from __future__ import annotations

import math

import pytest
from penstock_bench.paired import p_less, series, t_below


@pytest.mark.parametrize(
    ("t", "degrees", "below"),
    [
        # Critical values as every table prints them.
        (6.3138, 1, 0.95),
        (12.7062, 1, 0.975),
        (1.8331, 9, 0.95),
        (2.8609, 19, 0.995),
        (-2.5395, 19, 0.01),
        (0.0, 7, 0.5),
        (2.3642, 100, 0.99),
    ],
)
def test_the_distribution_is_as_printed(t: float, degrees: int, below: float) -> None:
    assert t_below(t, degrees) == pytest.approx(below, abs=2e-5)


def test_one_and_two_degrees_have_closed_forms() -> None:
    for t in (-30.0, -1.5, -0.1, 0.2, 3.0, 50.0):
        assert t_below(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, rel=1e-9)
        assert t_below(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), rel=1e-9)


def test_pairs_tell_what_means_do_not() -> None:
    # The machine changes from run to run by far more than ours differs from theirs.
    theirs = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    ours = [9.9, 19.8, 29.9, 39.8, 49.9, 59.8]
    assert p_less(ours, theirs) < 0.001
    assert p_less(theirs, ours) > 0.999
    # Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.4641 with two degrees.
    known = 0.5 + 3.4641016 / (2 * math.sqrt(2 + 12))
    assert p_less([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx(known, rel=1e-6)


def test_equal_series_tell_nothing() -> None:
    assert p_less([1.0, 2.0], [1.0, 2.0]) == 0.5
    assert p_less([1.0, 2.0], [2.0, 3.0]) == 0
    assert p_less([2.0, 3.0], [1.0, 2.0]) == 1
    with pytest.raises(ValueError, match="no pairs"):
        p_less([1.0], [1.0])


def test_the_error_shrinks_with_the_root_of_the_count() -> None:
    assert series([1.0, 3.0]) == series([1.0, 3.0])
    assert series([1.0, 3.0]).standard_error == pytest.approx(1.0)
    assert series([1.0, 3.0] * 50).standard_error == pytest.approx(0.1005, rel=1e-3)
    assert math.isnan(series([1.0]).standard_error)
