"""The replay's table, and the networks that a lane can have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock_bench import replay, replay_worker
from penstock_bench.gateways import GatewayError, Lane
from penstock_bench.network import PROFILES, Network


def row(way: replay.Way, queries_s: list[float], **more: object) -> dict[str, object]:
    return {
        "rows": 40_000,
        "profile": {"name": "gbit30-fake"},
        "store": way.back_end,
        "peer": way.gateway,
        "run": 0,
        "load_s": 1.0,
        "queries_s": queries_s,
        "server_cpu_s": 0.5,
        "answers": "same",
        **more,
    }


def test_the_table_tells_the_network_the_spread_and_what_a_gateway_adds() -> None:
    direct, ours = replay.Way("direct", "s3-fake"), replay.Way("penstock", "azure-fake")
    of = [row(ours, [1.0, last], queries_cpu_s=last / 10) for last in (1.1, 1.3)]
    records = [row(direct, [1.0, 1.0]), *of]
    failed = {"store": "s3-fake", "peer": "s3proxy", "run": 0, "error": "it ended"}
    lines = replay.text([*records, failed]).splitlines()
    assert lines[0] == "ClickHouse, 40000 rows, network gbit30-fake"
    line = " ".join(next(line for line in lines if line.startswith("azure-fake")).split())
    assert line.endswith(" 2.20 2.10 to 2.30 1100.0 1300.0 0.50 0.12 +10.0 %")
    # One of before that was told.
    line = " ".join(next(line for line in lines if line.startswith("s3-fake")).split())
    assert line.endswith(" 0.50 - +0.0 %")
    assert "the answers are the same on all" in lines
    assert lines[-1] == "failed: s3-fake s3proxy: it ended"


def test_records_of_before_there_were_networks_are_of_the_loopback() -> None:
    record = row(replay.Way("direct", "s3-fake"), [1.0])
    del record["profile"]
    assert replay.text([record]).startswith("ClickHouse, 40000 rows, network loopback")


def test_ways_that_were_asked_in_turn_are_compared_within_their_run() -> None:
    direct, ours = replay.Way("direct", "s3-fake"), replay.Way("penstock", "s3-fake")
    records = []
    # The machine's pace differs by more than what is added.
    for run, (base, total) in enumerate([(1.0, 1.1), (2.0, 2.1), (1.5, 1.8)]):
        records.append(row(direct, [base], run=run, in_turn=True))
        records.append(row(ours, [total], run=run, in_turn=True))
    lines = replay.text(records).splitlines()
    line = next(line for line in lines if "penstock" in line)
    assert line.rstrip().endswith(" +10.0 % (+5.0 to +20.0)")
    # Where the base of a run failed, all are compared with all.
    del records[0]
    line = next(line for line in replay.text(records).splitlines() if "penstock" in line)
    assert line.rstrip().endswith(" +2.9 %")


@pytest.mark.parametrize("disks", range(1, len(replay.WAYS) + 1))
def test_disks_have_their_turns_one_behind_the_other(disks: int) -> None:
    blocks: list[list[int]] = []
    asked: list[list[int]] = [[] for _ in range(disks)]
    for place, (disk, numbers) in enumerate(replay_worker.turns(disks, 205)):
        if place % disks == 0:
            blocks.append([])
        blocks[-1].append(disk)
        assert {numbers.start // replay_worker.BLOCK} == {len(blocks) - 1}
        asked[disk] += numbers
    assert all(numbers == list(range(205)) for numbers in asked)
    assert all(sorted(order) == list(range(disks)) for order in blocks)
    for one in range(disks):
        for other in range(one):
            before = sum(order.index(one) < order.index(other) for order in blocks)
            assert len(blocks) / 4 < before < len(blocks) * 3 / 4, (one, other)


class Answered:
    def bytes(self) -> bytes:
        return b"1"


class Broken:
    """A ClickHouse whose second table fails at its fifteenth query."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def query(self, query: str) -> Answered:
        self.asked.append(query)
        if sum("FROM wide1" in query for query in self.asked) == 15 and "FROM wide1" in query:
            raise RuntimeError("no such key")
        return Answered()


def test_a_disk_that_fails_ends_alone() -> None:
    session, disk = Broken(), {"disk": "disk = d", "server": os.getpid()}
    job = {"disks": [disk, disk, disk], "rows": 40, "queries": 200}
    first, second, third = replay_worker.replay(session, job)
    assert second == {"error": "ClickHouse: no such key"}
    assert len(first["queries_s"]) == len(third["queries_s"]) == 200
    assert first["answers"] == third["answers"]
    assert 0 <= first["queries_cpu_s"] <= first["server_cpu_s"]
    assert sum("FROM wide1" in query for query in session.asked) == 15


def test_a_way_that_does_not_start_is_left_out_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = [way for way in replay.WAYS if way.gateway in ("direct", "relay", "native")]

    def start(_: replay.Campaign, __: object, way: replay.Way) -> dict[str, object]:
        if way.gateway == "relay":
            raise GatewayError("it did not start")
        return {"disk": way.gateway, "server": 1}

    def ask(_: replay.Campaign, disks: list[dict[str, object]]) -> list[dict[str, object]]:
        return [{"queries_s": [1.0], "answers": disk["disk"]} for disk in disks]

    monkeypatch.setattr(replay.Campaign, "_start", start)
    monkeypatch.setattr(replay.Campaign, "_ask", ask)
    records = replay.Campaign(ways, 2, 40, tmp_path, lambda _: None).run()
    assert len(records) == 6
    for record in records:
        told = record.get("answers") or record["error"]
        assert told == {"relay": "it did not start"}.get(record["peer"], record["peer"])


def test_slow_fakes_are_told_how_slow() -> None:
    assert PROFILES["rtt100-fake"].fake_flags == ("--latency-ms", "100")
    flags = ("--latency-ms", "30", "--bandwidth-mbit", "150", "--bandwidth-up-mbit", "37")
    assert PROFILES["wan-fake"].fake_flags == flags
    assert PROFILES["wan"].fake_flags == PROFILES["loopback"].fake_flags == ()


class Elsewhere(Network):
    """Servers are reached by a port one higher."""

    def expose(self, port: int) -> int:
        return port + 1


def test_a_lane_reaches_its_back_end_through_the_network(tmp_path: Path) -> None:
    lane = Lane("direct", "s3-fake", tmp_path / "lane", network=Elsewhere())
    with lane as server:
        port = int(server.url.rsplit(":", 1)[1])
        log = Path(f"/proc/{server.pid}/net/tcp").read_text()
        assert f":{port - 1:04X} " in log
