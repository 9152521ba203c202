"""The table of the workload `footprint`, from records made up here."""

from penstock_bench import footprint


def record(figure: str, value: float, of: str = "") -> dict[str, object]:
    return {"figure": figure, "of": of, "value": value}


def test_a_figure_is_the_median_beside_its_limit() -> None:
    found = [record("LOAD", value, "DuckDB 9") for value in (0.009, 0.004, 0.5)]
    assert footprint.text(found).splitlines()[1].split() == [
        *("LOAD", "DuckDB", "9", "9", "ms", "10", "ms", "holds")
    ]
    assert not footprint.has_failed(found)


def test_one_version_over_its_limit_fails_all() -> None:
    found = [record("LOAD", 0.009, "DuckDB 9"), record("LOAD", 0.011, "DuckDB 8")]
    assert footprint.has_failed(found)
    assert [line.endswith("OVER") for line in footprint.text(found).splitlines()] == [
        *(False, False, True)
    ]
