"""Appends the 534 bytes by which DuckDB recognises an extension.

usage: duckdb-footer.py SHARED_LIBRARY EXTENSION DUCKDB_VERSION

A WebAssembly custom section named "duckdb_signature": eight fields of 32 bytes, the last one first
(three unused, ABI, our version, DuckDB's version, platform, magic "4"), then a signature of 256
zeros.
"""

import platform
import sys
import tomllib
from pathlib import Path

MANIFEST = Path(__file__).resolve().parents[1] / "Cargo.toml"
PLATFORMS = {"x86_64": "linux_amd64", "aarch64": "linux_arm64"}
"""DuckDB's names of the machines that the extension is built on."""


def footer(duckdb_version: str) -> bytes:
    """The bytes for one DuckDB version, such as ``v1.5.5``."""
    version = tomllib.loads(MANIFEST.read_text())["workspace"]["package"]["version"]
    prefix = b"\x00\x93\x04\x10duckdb_signature\x80\x04"
    fields = ["", "", "", "CPP", f"v{version}", duckdb_version, PLATFORMS[platform.machine()], "4"]
    packed = b"".join(field.encode().ljust(32, b"\x00") for field in fields)
    return prefix + packed + bytes(256)


def main() -> None:
    """Entry point: SOURCE TARGET DUCKDB_VERSION."""
    source, target, duckdb_version = sys.argv[1:]
    Path(target).write_bytes(Path(source).read_bytes() + footer(duckdb_version))


if __name__ == "__main__":
    main()
