"""What is shown: units, failures as loud as figures, picture and page."""

import sys
from pathlib import Path
from typing import Any

import pytest
from penstock_bench import bare_link, campaign, config, page, picture, report
from penstock_bench.__main__ import chosen_stores
from penstock_bench.figures import Link
from penstock_bench.network import PROFILES
from penstock_bench.options import numbers
from penstock_bench.processes import Server, free_port

LINK = Link(0.0001, 1e9, 1e9)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00123, "1.23 ms"), (1.5, "1.5 s"), (123.4, "123 s"), (0.9999, "1 s")],
)
def test_seconds(value: float, text: str) -> None:
    assert report.seconds(value) == text


@pytest.mark.parametrize(("rows", "text"), [(5000, "5k"), (2_000_000, "2M"), (1234, "1234")])
def test_rows(rows: int, text: str) -> None:
    assert report.rows_label(rows) == text


def test_numbers_take_units_and_refuse_words() -> None:
    assert numbers("5k, 2M 7") == (5000, 2_000_000, 7)
    with pytest.raises(config.ConfigError, match="not a list"):
        numbers("five")


def test_stores_replace_the_default_of_their_protocol() -> None:
    assert chosen_stores("azurite") == {"file": "file", "s3": "fake-s3", "azure": "azurite"}
    with pytest.raises(config.ConfigError, match="no store azure"):
        chosen_stores("azure")


def test_peers_alternate() -> None:
    peers = tuple(config.load_peers()[name] for name in ("penstock", "httpfs"))
    workload = config.load_workload("six_steps")
    plan = campaign.Plan(
        workload, PROFILES["loopback"], {"s3": "fake-s3"}, peers, (5,), {5: 2}, (0, 1), traced=True
    )
    turns = list(campaign.turns(plan, "s3", 5, traced=True))
    order = [(turn.peer.name, turn.threads) for turn in turns if turn.mode == "timed"]
    assert order == [
        ("penstock", 0), ("httpfs", 0), ("penstock", 1), ("httpfs", 1),
        ("httpfs", 0), ("penstock", 0), ("httpfs", 1), ("penstock", 1),
    ]  # fmt: skip
    assert [turn.peer.name for turn in turns if turn.mode == "traced"] == ["penstock", "httpfs"]


def run(peer: str, protocol: str, wall_s: float, error: str | None = None) -> dict[str, Any]:
    steps = [
        {"name": step.name, "wall_s": wall_s, "user_s": wall_s, "sys_s": 0.0, "error": error,
         "requests": 3, "server_cpu_s": 0.03, "bytes_up": 10, "bytes_down": 2_000_000}
        for step in config.load_workload("six_steps").steps
    ]  # fmt: skip
    return {
        "peer": peer, "protocol": protocol, "rows": 5000, "threads": 0, "steps": steps,
        "mode": "timed", "store": "fake-s3", "time": "now", "commit": "abc", "dirty": True,
        "versions": {"duckdb": "1.5.5"}, "machine": {"cpu": "c", "cores": 2, "kernel": "k"},
        "profile": {"name": "loopback"}, "file_bytes": {"single": 1000},
        "ceiling": {"loopback_bytes_per_s": 3e9, "loopback_cpu_s_per_gb": 0.1,
                    "loopback_rtt_s": 2e-5},
    }  # fmt: skip


def records() -> list[dict[str, Any]]:
    return [
        run("penstock", "s3", 0.2),
        run("httpfs", "s3", 0.1),
        run("httpfs-metacache", "s3", 0.4),
        run("httpfs-keepalive", "s3", 0.4, error="IO Error: refused"),
        run("local", "file", 0.05),
    ]


def test_losses_and_failures_are_counted_and_shown(tmp_path: Path) -> None:
    workload = config.load_workload("six_steps")
    found = report.entries(workload, config.load_peers(), records(), LINK)
    text = report.terminal(found, color=True)
    assert "FAILED: IO Error: refused" in text
    assert "\033[31m" in text
    assert "0.50x" in text and "2.00x" in text
    assert "faster in 6, level in 0, slower in 6; 6 cells with failed runs" in report.summary(found)
    variant = run("penstock-novalidation", "s3", 0.05)
    both = report.entries(workload, config.load_peers(), [*records(), variant], LINK)
    assert report.summary(both).endswith(
        "6 cells with failed runs. Best settings against best peer, 6 cells: "
        "faster in 6, level in 0, slower in 0"
    )
    ranking = report.ranking(found).splitlines()
    assert ranking[1].split()[0].endswith("x")
    assert "store CPU" in ranking[0]
    assert "30 ms" in ranking[1]

    image = tmp_path / "map.png"
    picture.heatmap(found, "Title", "subtitle", image)
    page.write(tmp_path / "page.html", "Title", found, records(), image)
    assert image.read_bytes().startswith(b"\x89PNG")
    html = (tmp_path / "page.html").read_text()
    assert html.count("class='failed") == 6 and html.count("class='lost") == 12


def test_a_link_is_measured_by_its_rate_and_by_a_bare_stream() -> None:
    # 20 MB in 0.2 s.
    rows = records()
    for row in rows:
        for step in row["steps"]:
            step["bytes_down"] = 20_000_000
    found = report.entries(config.load_workload("six_steps"), config.load_peers(), rows, LINK)
    lines = report.link_shares(found, 1000, 115e6).splitlines()
    assert "1000 Mbit/s" in lines[0] and "115.0 MB/s" in lines[0]
    ours = next(line for line in lines if "Penstock:" in line)
    assert ours.split()[:2] == ["80.0%", "87.0%"]
    assert not any("httpfs-keepalive" in line for line in lines), "it failed"
    assert report.link_shares(found, 1000, None).splitlines()[2].split()[1] == "-"
    assert report.link_shares(found, 0, None) == ""


def test_a_bare_stream_is_counted(tmp_path: Path) -> None:
    port = free_port()
    sender = Server(
        [sys.executable, bare_link.__file__, "send", str(port), str(16 << 20)],
        port,
        tmp_path / "log",
    )
    try:
        assert bare_link.receive(port) > 1e6
    finally:
        sender.stop()
    few = Server([sys.executable, bare_link.__file__, "send", str(port), "0"], port, tmp_path / "l")
    try:
        with pytest.raises(RuntimeError, match="only 0 bytes"):
            bare_link.receive(port)
    finally:
        few.stop()
