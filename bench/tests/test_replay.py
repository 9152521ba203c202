"""The replay's table, and the networks that a lane can have."""

from __future__ import annotations

from pathlib import Path

from penstock_bench import replay
from penstock_bench.gateways import Lane
from penstock_bench.network import PROFILES, Network


def row(way: replay.Way, queries_s: list[float], **more: object) -> dict[str, object]:
    return {
        "rows": 40_000,
        "profile": {"name": "gbit30-fake"},
        "store": way.back_end,
        "peer": way.gateway,
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
