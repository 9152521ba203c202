"""Runs what docs/guide/python.md shows, with the tools that it is for."""

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guide/python.md").read_text()
VERSION = re.compile(r"\b0\.\d+\.\d+\b")


def blocks(language: str) -> dict[str, list[str]]:
    """The blocks of a language, by the heading above them."""
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        heading = section.split("\n", 1)[0]
        found[heading] = re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)
    return found


PYTHON = blocks("python")


@pytest.fixture(scope="module")
def python() -> str:
    """The Python that has the tools."""
    command = [str(ROOT / "scripts/clients.sh"), "recipes"]
    return subprocess.check_output(command, text=True).strip()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the package of this checkout, and what is known of it."""
    site = tmp_path_factory.mktemp("site")
    (site / "penstock").symlink_to(ROOT / "python/src/penstock")
    installed = Path(str(metadata.distribution("penstock").locate_file("")))
    for info in installed.glob("penstock-*.dist-info"):
        (site / info.name).symlink_to(info)
    return site


def run(command: list[str], folder: Path, package: Path) -> str:
    """What a command prints that ends well."""
    # dbt would wait minutes for its maker's statistics where there is no network.
    environment = {**os.environ, "PYTHONPATH": str(package), "NO_COLOR": "1", "DO_NOT_TRACK": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("heading", [name for name in PYTHON if name != "dbt-duckdb"])
def test_the_recipe_loads_the_extension(
    python: str, package: Path, heading: str, tmp_path: Path
) -> None:
    for program in PYTHON[heading]:
        assert VERSION.search(run([python, "-c", program], tmp_path, package))


def test_a_model_of_dbt_runs_with_the_extension(python: str, package: Path, tmp_path: Path) -> None:
    (tmp_path / "profiles.yml").write_text(blocks("yaml")["dbt-duckdb"][0])
    (tmp_path / "lake_plugin.py").write_text(PYTHON["dbt-duckdb"][0])
    (tmp_path / "dbt_project.yml").write_text(
        "name: lake\nversion: '1.0'\nprofile: lake\nflags:\n  send_anonymous_usage_stats: false\n"
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models/version.sql").write_text("SELECT penstock_version() AS version")
    program = "from dbt.cli.main import cli; cli()"
    shown = run([python, "-c", program, "show", "--select", "version"], tmp_path, package)
    assert VERSION.search(shown.split("version")[-1])
