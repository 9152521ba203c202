from pathlib import Path

import pytest
from penstock_bench.config import ConfigError
from penstock_bench.soak import MODES, cache_reads, lane_of, lanes_of
from penstock_bench.soak_model import FDS_SLACK, MIB, Model, Sample, Version, growth

OLD, NEW = Version(1, 100), Version(2, 100)


def test_versions_differ_from_their_first_bytes_on() -> None:
    assert OLD.content() != NEW.content()
    assert OLD.content()[20:40] != NEW.content()[20:40]
    assert [len(Version(7, size).content()) for size in (0, 3, MIB)] == [0, 3, MIB]


def test_a_failed_write_is_there_or_not_until_it_is_seen() -> None:
    model = Model()
    model.wrote("k", OLD, granted=True)
    model.wrote("k", NEW, granted=False)
    assert model.of("k") == {OLD, NEW}
    torn = OLD.content()[:50] + NEW.content()[50:]
    assert not model.saw("k", lambda held: held is not None and held.content() == torn)
    assert model.saw("k", lambda held: held == NEW)
    assert not model.saw("k", lambda held: held == OLD)


def test_a_list_has_what_must_be_and_nothing_that_cannot() -> None:
    model = Model()
    model.wrote("is", OLD, granted=True)
    model.wrote("may", OLD, granted=False)
    assert model.listed({"is"})
    assert model.listed({"is", "may"})
    assert not model.listed({"may"})
    assert not model.listed({"is", "other"})


def test_growth_is_told_of_memory_and_of_descriptors() -> None:
    flat = [Sample(100 * MIB, 20)] * 40
    assert growth(flat) == []
    leaking = [Sample(100 * MIB + n * MIB, 20 + n) for n in range(200)]
    assert [line.split()[0] for line in growth(leaking)] == ["memory", "descriptors"]
    assert FDS_SLACK > 0
    assert growth(flat[:3])


def test_a_reader_beside_a_write_finds_what_was_or_what_comes_and_nothing_older() -> None:
    model = Model()
    model.wrote("k", OLD, granted=True)
    with model.looking("k") as early:
        model.begins("k", NEW)
        with model.looking("k") as meanwhile:
            model.wrote("k", NEW, granted=True)
        with model.looking("k") as late:
            pass
    assert early == meanwhile == {OLD, NEW}
    assert late == {NEW}
    model.begins("k", None)
    assert early == {OLD, NEW}, "who has ended learns of no more"


def test_what_others_replaced_may_be_read_for_so_long_and_tells_nothing() -> None:
    now = [100.0]
    model = Model(stale_s=5, now_s=lambda: now[0])
    model.wrote("k", OLD, granted=True)
    model.wrote("k", NEW, granted=True)
    assert model.saw("k", lambda held: held == OLD)
    assert model.saw("k", lambda held: held is None), "it was not there at first"
    assert model.of("k") == {NEW}
    now[0] += 6
    assert model.saw("k", lambda held: held == OLD, begun_s=104.0), "asked in time, answered late"
    assert not model.saw("k", lambda held: held == OLD)
    assert model.saw("k", lambda held: held == NEW)


def test_modes_fit_their_stores() -> None:
    all_modes = {(store, mode) for store in ("azure-fake", "directory") for mode in MODES}
    cached = {("directory", mode) for mode, it in MODES.items() if it}
    assert set(lanes_of(("azure-fake", "directory"), ())) == all_modes - cached
    with pytest.raises(ConfigError, match="a directory is not cached"):
        lane_of("directory", "time", Path("/nowhere"))


def test_what_the_caches_gave_is_read_from_the_page_of_metrics() -> None:
    page = (
        "# TYPE penstock_cache_read_bytes_total counter\n"
        'penstock_cache_read_bytes_total{cache="memory"} 12\n'
        'penstock_cache_read_bytes_total{cache="disk"} 0\n'
        'penstock_cache_hits_total{cache="disk"} 7\n'
    )
    assert cache_reads(page) == {"memory": 12, "disk": 0}
