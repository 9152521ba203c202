"""The modes of the parallel-read workload: what they hold, and how their records are shown."""

from typing import Any

import pytest
from penstock_bench import config, modes

DOCUMENTED = [
    "full",
    "recommended",
    "auto-adaptive",
    "overhead-sweep",
    "low-threads",
    "single-scan",
    "pool-tasks",
    "pool-fanout",
    "fanout-sweep",
]


def record(peer: str, threads: int, *walls: float, error: str | None = None) -> dict[str, Any]:
    steps = [
        {
            "name": "blob",
            "wall_s": wall,
            "user_s": wall / 4,
            "sys_s": wall / 4,
            "bytes_down": 100e6,
            "requests": 4,
            "error": error,
        }
        for wall in walls
    ]
    return {"peer": peer, "threads": threads, "mode": "timed", "steps": steps}


def test_every_documented_mode_compares_with_plain_httpfs_on_steps_that_exist() -> None:
    assert list(modes.MODES) == DOCUMENTED
    steps = {step.name for step in config.load_workload("parallel_read").steps}
    for mode in modes.MODES.values():
        names = [peer.name for peer in mode.peers]
        assert names[0] == modes.BASELINE
        assert len(set(names)) == len(names)
        assert set(mode.steps) <= steps


def test_configurations_name_settings_that_exist() -> None:
    reference = (config.ROOT / "docs/reference.md").read_text()
    for peer in modes.MODES["full"].peers + modes.MODES["pool-fanout"].peers:
        for name in peer.settings.keys() - {"enable_external_file_cache"}:
            assert f"| `{name.removeprefix('penstock_')}` |" in reference


def test_other_workloads_measure_wrapped_peers_where_they_are_named() -> None:
    shipped, peers = config.load_peers(), modes.peers_by_name()
    assert {name: peers[name] for name in shipped} == shipped
    wrapped = [peer for name, peer in peers.items() if name not in shipped]
    assert {"wrap", "recommended", "auto-adaptive"} <= {peer.name for peer in wrapped}
    for peer in wrapped:
        assert peer.by_name and peer.wrap and "enable_external_file_cache" not in peer.settings


def test_unknown_mode_names_those_there_are() -> None:
    with pytest.raises(config.ConfigError, match="low-threads"):
        modes.find("few-threads")


def test_summary_and_comparison() -> None:
    records = [
        record("httpfs", 1, 1.0, 0.5),
        record("httpfs", 1, 0.4),
        record("httpfs", 2, 0.5),
        record("wrap", 1, 0.4),
        record("wrap", 2, 1.0, error="refused"),
    ]
    assert modes.summary(records).splitlines() == [
        "configuration  threads  p50 MB/s  CPU %  requests  machine %",
        "-------------  -------  --------  -----  --------  ---------",
        "httpfs               1       200     50         4          -",
        "httpfs               2       200     50         4          -",
        "wrap                 1       250     50         4          -",
        "wrap                 2    failed      0         0          -",
    ]
    compared = modes.compare(records).splitlines()
    assert [line.split("  ")[-1].strip() for line in compared[2:]] == ["200 MB/s", "failed"]
    assert "250 (+25.0 %)" in compared[3]


def test_what_the_processors_could_not_do_more_of_is_shown() -> None:
    told = record("penstock", 4, 0.5)
    told["machine"] = {"cores": 2}
    told["steps"][0] |= {"server_cpu_s": 0.1, "proxy_cpu_s": 0.4}
    # 0.25 s of the client, 0.1 of the store and 0.4 of the proxy, in half a second of two cores.
    assert modes.cells([told])["penstock"][4].machine_percent == pytest.approx(75)
    assert modes.summary([told]).splitlines()[-1].split()[-1] == "75"
    assert modes.summary([record("penstock", 4, 0.5)]).splitlines()[-1].split()[-1] == "-"
