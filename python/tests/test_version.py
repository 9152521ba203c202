"""One version everywhere, and `python -m penstock` runs the binary."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import penstock

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def test_the_manifests_name_one_version() -> None:
    chart = (ROOT / "deploy/helm/penstock/Chart.yaml").read_text()
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    named = {
        "chart": re.findall(r"^version: (.*)$", chart, re.M),
        "application of the chart": re.findall(r'^appVersion: "(.*)"$', chart, re.M),
        "Python project": [project["version"]],
        "Python package": [penstock.__version__],
    }
    assert named == {place: [VERSION] for place in named}


def test_the_module_runs_the_binary() -> None:
    command = [sys.executable, "-m", "penstock", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout == f"penstock {VERSION}\n"


def test_the_compiler_of_releases_is_pinned_with_its_profile() -> None:
    toolchain = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]
    assert (ROOT / f"crates/cli/rustc-{toolchain['channel']}.profdata").is_file()
    containerfile = (ROOT / "deploy/Containerfile").read_text()
    assert f"FROM rust:{toolchain['channel']}-bookworm AS build" in containerfile
