"""Where files are looked for, and what is said when they are not there."""

from pathlib import Path

import penstock
import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    return tmp_path


def ship(home: Path, version: str) -> Path:
    path = home / "duckdb" / f"v{version}" / "penstock.duckdb_extension"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_versions_are_listed_oldest_first(home: Path) -> None:
    for version in ("1.10.0", "1.5.5", "2.0.0"):
        ship(home, version)
    (home / "duckdb" / "vnext").mkdir()
    assert penstock.shipped_versions() == ["1.5.5", "1.10.0", "2.0.0"]


@pytest.mark.parametrize("spelling", ["1.5.5", "v1.5.5"])
def test_extension_path_takes_both_spellings(home: Path, spelling: str) -> None:
    path = ship(home, "1.5.5")
    assert penstock.extension_path(spelling) == path


def test_missing_version_names_those_there_are(home: Path) -> None:
    ship(home, "1.5.5")
    ship(home, "2.0.0")
    with pytest.raises(penstock.NotShippedError, match=r"DuckDB 1\.4\.0.*1\.5\.5, 2\.0\.0"):
        penstock.extension_path("1.4.0")
    with pytest.raises(penstock.NotShippedError, match=r"versions\.tsv lists.*VERSION=1\.4\.0`"):
        penstock.extension_path("1.4.0")


def test_empty_installation_says_how_to_fill_it(home: Path) -> None:
    with pytest.raises(penstock.NotShippedError, match="make build"):
        penstock.extension_path("1.5.5")
    with pytest.raises(penstock.NotShippedError, match="make build"):
        penstock.binary_path()
