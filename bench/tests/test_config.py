"""Workload and peer files: what is accepted, and what is refused by name."""

from pathlib import Path

import pytest
from penstock_bench import config

STEP = '[[step]]\nname = "a"\ntitle = "A"\nsql = "SELECT 1"\n'
WORKLOAD = (
    'title = "T"\nsizes = [1]\nquick_sizes = [1]\nruns = 1\nquick_runs = 1\nprotocols = ["s3"]\n'
)


def test_every_shipped_file_is_valid() -> None:
    for path in (config.BENCH / "workloads").glob("*.toml"):
        assert config.load_workload(path.stem).steps
    assert {"penstock", "azure", "httpfs", "local"} <= config.load_peers().keys()


def test_peers_that_a_workload_names_exist_and_cache_peers_are_measured_by_name_only() -> None:
    peers = config.load_peers()
    for path in (config.BENCH / "workloads").glob("*.toml"):
        assert set(config.load_workload(path.stem).peers) <= peers.keys()
    by_name = {name for name, peer in peers.items() if peer.by_name}
    assert by_name == {"penstock-disk", "penstock-memory", "penstock-2"}


def test_the_peer_on_another_duckdb_is_on_the_newest() -> None:
    table = (config.ROOT / "scripts/duckdb-versions.tsv").read_text().splitlines()
    newest = next(line.split("\t")[0] for line in table if not line.startswith("#"))
    peer = config.load_peers()["penstock-2"]
    assert peer.duckdb == newest
    assert newest in peer.title


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WORKLOAD + "rnus = 2\n" + STEP, "w: unknown key rnus"),
        (STEP, "w: missing key .*sizes"),
        (WORKLOAD.replace("s3", "ftp") + STEP, "unknown protocol ftp"),
        (WORKLOAD + STEP + STEP, "two steps of one name"),
        (WORKLOAD + STEP + 'chekc = "x"\n', r"w\.step\[0\]: unknown key chekc"),
        (WORKLOAD + STEP + "limit = { s3 = 1, azur = 2 }\n", r"limit: unknown key azur"),
    ],
)
def test_mistakes_in_workloads_are_named(text: str, message: str) -> None:
    with pytest.raises(config.ConfigError, match=message):
        config.parse_workload(text, "w")


def test_unknown_extension_is_refused() -> None:
    with pytest.raises(config.ConfigError, match="unknown extension curl"):
        config.parse_peer('title = "T"\nextension = "curl"\nprotocols = ["s3"]', "p")


def test_unknown_workload_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError, match=r"far_scan, .*six_steps"):
        config.load_workload("six_stpes")


def test_a_workload_is_narrowed_to_what_is_named() -> None:
    two = WORKLOAD.replace('"s3"', '"s3", "azure"') + STEP + STEP.replace('"a"', '"b"')
    workload = config.parse_workload(two, "w")
    assert config.narrowed(workload, "", "") == workload
    found = config.narrowed(workload, "azure", "b, a")
    assert found.protocols == ("azure",)
    assert [step.name for step in found.steps] == ["a", "b"]
    with pytest.raises(config.ConfigError, match="w has no steps c; it has: a, b"):
        config.narrowed(workload, "s3", "a c")


@pytest.mark.parametrize(("size", "trips"), [(0, 1), (8 << 20, 1), ((8 << 20) + 1, 3)])
def test_round_trips_grow_above_one_part(size: int, trips: int) -> None:
    limit = config.Limit(s3=1, azure=1, s3_large=3)
    assert limit.round_trips("s3", size) == trips
    assert limit.round_trips("azure", size) == 1
    assert limit.round_trips("file", size) == 0
