"""The source distribution that scripts/sdist.sh makes: what is in it, and what it says it lacks."""

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
NAME = f"penstock-{MANIFEST['version']}"
NOT_NEEDED = (".ci/", "bench/", "deploy/", "docs/", "fuzz/")
"""Folders that a build takes nothing from; a new one is in the distribution, or here."""


def build() -> Path:
    subprocess.run([ROOT / "scripts/sdist.sh"], check=True, stdout=subprocess.DEVNULL)
    return ROOT / f"build/dist/{NAME}.tar.gz"


@pytest.fixture(scope="module")
def packed() -> bytes:
    return build().read_bytes()


@pytest.fixture(scope="module")
def unpacked(packed: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("sdist")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(into, filter="data")
    return into / NAME


def test_the_same_commit_gives_the_same_bytes(packed: bytes) -> None:
    assert build().read_bytes() == packed


def test_it_holds_all_tracked_files_that_a_build_needs(unpacked: Path) -> None:
    listed = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-z"], text=True).split("\0")
    needed = {
        path for path in listed if (ROOT / path).is_file() and not path.startswith(NOT_NEEDED)
    }
    assert len(needed) > 900
    sources = unpacked / "sources"
    held = {str(path.relative_to(sources)) for path in sources.rglob("*") if path.is_file()}
    assert held == needed
    for path in ("scripts/release.sh", "scripts/sdist-wheel.sh", "scripts/wheel.sh"):
        assert os.access(sources / path, os.X_OK), path
    # Cargo finds each package and program that the manifests name, and the lock file fits.
    command = ["cargo", "metadata", "--offline", "--locked", "--no-deps", "--format-version=1"]
    subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL)


def test_its_metadata_is_that_of_the_project(unpacked: Path) -> None:
    told = Parser().parsestr((unpacked / "PKG-INFO").read_text())
    assert (told["Name"], told["Version"]) == ("penstock", MANIFEST["version"])
    assert (told["Requires-Python"], told["License-Expression"]) == (
        PROJECT["requires-python"],
        PROJECT["license"],
    )
    told_range = set(told["Requires-Dist"].removeprefix("duckdb").split(","))
    assert told_range == set(PROJECT["dependencies"][0].removeprefix("duckdb").split(","))
    assert told.get_payload() == (ROOT / "python/README.md").read_text()


@pytest.mark.parametrize("there", [[], ["cargo"], ["g++"]])
def test_a_build_says_which_compiler_is_missing(
    unpacked: Path, tmp_path: Path, there: list[str]
) -> None:
    for name in there:
        (tmp_path / name).symlink_to("/bin/true")
    # As pip calls it, with what pip would install for it.
    ask = f". {ROOT}/scripts/lib.sh; wheel_tools {sys.executable}"
    tools = subprocess.check_output(["bash", "-c", ask], text=True).strip()
    program = "import build_backend; build_backend.build_wheel('.')"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": f"{tools}:{unpacked}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert ("cargo of Rust " + MANIFEST["rust-version"] in done.stderr) == ("cargo" not in there)
    assert ("C++ compiler g++" in done.stderr) == ("g++" not in there)
