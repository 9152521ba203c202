"""Where the extension and the binary are.

An installed wheel holds them in the package; an editable install of a checkout takes them from the
checkout's ``build`` directory; the environment variable ``PENSTOCK_HOME`` names another directory
of the same shape (``penstock``, ``duckdb/vX.Y.Z/penstock.duckdb_extension``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock._errors import NotShippedError

_PACKAGE = Path(__file__).resolve().parent
_EXTENSION = "penstock.duckdb_extension"
_VERSION = re.compile(r"v?(\d+\.\d+\.\d+)")


def _home() -> Path:
    override = os.environ.get("PENSTOCK_HOME")
    if override:
        return Path(override)
    packaged = _PACKAGE / "_native"
    if packaged.is_dir():
        return packaged
    return _PACKAGE.parents[2] / "build"


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def shipped_versions() -> list[str]:
    """The DuckDB versions that this installation has an extension for, oldest first."""
    versions = [
        match.group(1)
        for path in (_home() / "duckdb").glob(f"v*/{_EXTENSION}")
        if (match := _VERSION.fullmatch(path.parent.name))
    ]
    return sorted(versions, key=_version_key)


def extension_path(version: str | None = None) -> Path:
    """Path of the extension for a DuckDB version (``"1.5.5"`` or ``"v1.5.5"``).

    Without a version: the one of the installed ``duckdb`` package.

    Raises:
        NotShippedError: there is no extension for that version; the message names those there are.
    """
    if version is None:
        import duckdb

        version = duckdb.__version__
    match = _VERSION.fullmatch(version)
    version = match.group(1) if match else version
    shipped = shipped_versions()
    if version in shipped:
        return _home() / "duckdb" / f"v{version}" / _EXTENSION
    if not shipped:
        raise NotShippedError(
            f"no Penstock extension for DuckDB {version}: {_home() / 'duckdb'} holds none at all. "
            "In a checkout, run `make build`; otherwise reinstall the package `penstock`."
        )
    raise NotShippedError(
        f"no Penstock extension for DuckDB {version}: this installation ships it for "
        f"{', '.join(shipped)}. Install one of these (`pip install duckdb=={shipped[-1]}`), "
        "or a newer wheel of `penstock`. In a checkout of Penstock whose "
        "scripts/duckdb-versions.tsv lists that version, "
        f"`make extension VERSION={version}` builds it."
    )


def binary_path() -> Path:
    """Path of the ``penstock`` binary.

    Raises:
        NotShippedError: this installation holds no binary.
    """
    path = _home() / "penstock"
    if not path.is_file():
        raise NotShippedError(
            f"the penstock binary is not at {path}. "
            "In a checkout, run `make build`; otherwise reinstall the package `penstock`."
        )
    return path
