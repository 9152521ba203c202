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
