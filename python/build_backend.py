"""How pip builds Penstock: setuptools, but for the source distribution.

The source distribution holds this folder and, in ``sources``, what the engine and the extension are
built from. A wheel of it is made by the scripts there, which take cargo, a C++ compiler, and for
each version of DuckDB about fifteen minutes of a processor for DuckDB's core, once for a machine.
Everywhere else setuptools packs what is there.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "sources"
FOLDERS = ("crates", "duckdb", "python", "scripts")
"""The folders of the checkout that a build needs, beside the files at its top."""

_Settings = Mapping[str, object] | None


def build_wheel(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """Makes the wheel, and before that, in a source distribution, all that it holds.

    The environment variable ``DUCKDB_VERSIONS`` names the versions of DuckDB that it is for, with
    blanks between; without it the newest that Penstock knows.
    """
    if not SOURCES.is_dir():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    _check_compilers()
    named = os.environ.get("DUCKDB_VERSIONS", "").split()
    # What pip puts there is for this process, not for the environments that the scripts make.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [SOURCES / "scripts/sdist-wheel.sh", *named], check=True, cwd=SOURCES, env=environment
    )
    (wheel,) = (SOURCES / "build/dist").glob("penstock-*.whl")
    shutil.copy(wheel, wheel_directory)
    return wheel.name


def _check_compilers() -> None:
    """Ends with what to install where a compiler is missing."""
    manifest = tomllib.loads((SOURCES / "Cargo.toml").read_text())
    rust = manifest["workspace"]["package"]["rust-version"]
    cxx = os.environ.get("CXX", "g++")
    missing = []
    if not shutil.which("cargo"):
        missing.append(f"cargo of Rust {rust} or later (install it with rustup)")
    if not shutil.which(cxx):
        missing.append(f"the C++ compiler {cxx} (Debian's package g++, or name yours in CXX)")
    if missing:
        raise SystemExit(
            f"error: Penstock cannot be built from its sources: {' and '.join(missing)} is "
            "missing. A wheel of a release needs no compiler."
        )


def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    """Makes the source distribution of a checkout: the same bytes for the same commit."""
    if SOURCES.is_dir() or not (HERE.parent / ".git").exists():
        raise SystemExit("error: a source distribution is made in a checkout of git")
    name, metadata = _metadata()
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    path = Path(sdist_directory) / f"{name}.tar.gz"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, f"{name}/PKG-INFO", metadata, 0o644, moment)
        for place, file in _files():
            mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            _add(archive, f"{name}/{place}", file.read_bytes(), mode, moment)
    with path.open("wb") as out, gzip.GzipFile("", "wb", 9, out, moment) as zipped:
        zipped.write(packed.getvalue())
    return path.name


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(HERE.parent), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _metadata() -> tuple[str, bytes]:
    """The name with the version, and what stands in PKG-INFO."""
    with tempfile.TemporaryDirectory() as into:
        folder = prepare_metadata_for_build_wheel(into)
        return folder.removesuffix(".dist-info"), (Path(into) / folder / "METADATA").read_bytes()


def _files() -> Iterator[tuple[str, Path]]:
    """Where each file is in the distribution, and where here."""
    for path in sorted(_git("ls-files", "-z").split("\0")):
        folder, _, rest = path.partition("/")
        file = HERE.parent / path
        if not path or not file.is_file() or (rest and folder not in FOLDERS):
            continue
        yield f"sources/{path}", file
        if folder == "python" and not rest.startswith("tests/"):
            yield rest, file


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int, moment: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, moment
    archive.addfile(entry, io.BytesIO(content))
