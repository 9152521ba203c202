"""From raw runs to medians, ratios and limits."""

from typing import Any

import pytest
from penstock_bench import config, figures
from penstock_bench.figures import Cell, Link, PeerCell, Summary


def record(peer: str, wall_s: float, **more: object) -> dict[str, Any]:
    step = {"name": "read", "wall_s": wall_s, "user_s": wall_s / 2, "sys_s": 0.0, "error": None}
    step |= {key: more.pop(key) for key in ("requests", "error") if key in more}
    base = {"protocol": "s3", "rows": 10, "threads": 0, "peer": peer, "mode": "timed"}
    return {**base, **more, "steps": [step]}


CELL = Cell("s3", "read", 10, 0)


def test_median_and_range_per_peer() -> None:
    table = figures.tabulate([record("a", wall) for wall in (3.0, 1.0, 2.0)] + [record("b", 8.0)])
    assert table[CELL]["a"].measures["wall_s"] == Summary(2.0, 1.0, 3.0, 3)
    assert table[CELL]["a"].measures["cpu_s"].median == 1.0
    assert figures.ratio(table[CELL]["b"], table[CELL]["a"]) == 4.0
    assert figures.best_peer(table[CELL], "a") == "b"


def test_traced_runs_give_counts_but_no_times() -> None:
    rows = [record("a", 1.0), record("a", 9.0, mode="traced", requests=4)]
    cell = figures.tabulate(rows)[CELL]["a"]
    assert cell.measures["wall_s"].runs == 1
    assert cell.measures["requests"].median == 4


def test_a_failed_run_spoils_its_cell_and_nothing_else() -> None:
    rows = [record("a", 1.0), record("a", 0.1, error="refused"), record("b", 2.0)]
    cells = figures.tabulate(rows)[CELL]
    assert cells["a"].failures == ["refused"]
    assert cells["a"].measures["wall_s"].median == 1.0
    assert figures.ratio(cells["b"], cells["a"]) is None


def test_a_peer_that_only_failed_still_has_a_cell() -> None:
    assert figures.tabulate([record("a", 0.0, error="no")])[CELL]["a"] == PeerCell({}, ["no"])


def test_limit_adds_round_trips_bytes_and_local_time() -> None:
    text = (
        'title = "T"\nsizes = [1]\nquick_sizes = [1]\nruns = 1\nquick_runs = 1\n'
        'protocols = ["s3"]\n'
        '[[step]]\nname = "read"\ntitle = "R"\nsql = "x"\n'
        'limit = { s3 = 2, azure = 3, bytes = "single" }\n'
    )
    workload = config.parse_workload(text, "w")
    local = PeerCell({"wall_s": Summary(0.25, 0.25, 0.25, 1)}, [])
    link = Link(rtt_s=0.03, up_bytes_per_s=1e6, down_bytes_per_s=2e6)
    assert figures.limit_s(workload, CELL, link, local, {"single": 1_000_000}) == pytest.approx(
        0.81
    )
    assert figures.limit_s(workload, CELL, link, None, {}) is None


def test_least_bytes_over_peers() -> None:
    def moved(size: float) -> PeerCell:
        return PeerCell({"bytes": Summary(size, size, size, 1)}, [])

    assert figures.least_bytes({"a": moved(3), "b": moved(2), "c": PeerCell({}, ["no"])}) == 2
    assert figures.least_bytes({}) == 0


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ([(1, "a")], [(1, "a")], True),
        ([(0.1 + 0.2,)], [(0.3,)], True),
        ([(1.0,)], [(1.1,)], False),
        ([(1,)], [(1,), (2,)], False),
        ([(None,)], [(0,)], False),
        ([], [], True),
    ],
)
def test_answers_are_compared(left: list[Any], right: list[Any], same: bool) -> None:
    assert figures.same_answer(left, right) is same
