"""The layout of DuckDB's community extensions: DuckDB's CMake files take it, sources and all."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMMUNITY = ROOT / "duckdb/community"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def told(command: str) -> str:
    """What a function of the scripts prints."""
    program = f". {ROOT}/scripts/duckdb-lib.sh; {command}"
    return subprocess.check_output(["bash", "-c", program], text=True)


def test_duckdb_configures_it_with_the_sources_that_the_scripts_build(tmp_path: Path) -> None:
    newest = told("duckdb_versions").split()[0]
    tree = told(f"$ROOT/scripts/duckdb-sources.sh tree {newest}").strip()
    tools = told("$ROOT/scripts/duckdb-sources.sh tools").strip()
    options = [
        "-GNinja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DEXTENSION_STATIC_BUILD=1",
        f"-DDUCKDB_EXTENSION_CONFIGS={COMMUNITY}/extension_config.cmake",
        f"-DOVERRIDE_GIT_DESCRIBE=v{newest}-0-g0000000000",
        # As little beside it as there can be.
        "-DSKIP_EXTENSIONS=parquet;json;icu",
        "-DBUILD_UNITTESTS=0",
        "-DBUILD_SHELL=0",
    ]
    done = subprocess.run(
        ["cmake", "-S", tree, "-B", tmp_path, *options],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"Load extension 'penstock' from '{COMMUNITY}' @ v{VERSION}" in done.stdout
    rules = (tmp_path / "build.ninja").read_text()
    assert re.search(r"cargo build --release --locked --package penstock-ffi", rules)
    ours = re.findall('"(.*)"', told("shim_unit"))
    assert len(ours) > 20
    for target in ("penstock_extension", "penstock_loadable_extension"):
        (unit,) = tmp_path.rglob(f"{target}.dir/Unity/unity_0_cxx.cxx")
        theirs = re.findall('#include "(.*)"', unit.read_text())
        assert [os.path.realpath(path) for path in theirs] == ours


def test_its_description_says_what_the_project_says() -> None:
    extension = yaml.safe_load((COMMUNITY / "description.yml").read_text())["extension"]
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    assert (extension["name"], extension["version"]) == ("penstock", VERSION)
    assert extension["license"] == project["license"]
    assert extension["requires_toolchains"] == "rust"
    makefile = (COMMUNITY / "Makefile").read_text()
    assert f"\nEXT_NAME = {extension['name']}\n" in makefile
    assert "extension_config.cmake\n" in makefile
