"""Prints the bill of materials of the binary and the extension, as CycloneDX 1.6.

usage: SOURCE_DATE_EPOCH=SECONDS sbom.py DUCKDB_VERSION... > penstock.cdx.json

The same commit gives the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from typing import Any

from shipped import ROOT, ROOTS, Part, everything

SPACE = uuid.UUID("5f0c3a1e-4f0b-4f57-9d0c-2f6f3c6b8a10")
"""Of the serial numbers, which are made of what the document says."""


def component(part: Part) -> dict[str, Any]:
    """One entry."""
    entry: dict[str, Any] = {"type": "library", "bom-ref": part.purl, "name": part.name}
    entry |= {"version": part.version, "purl": part.purl}
    if part.licence != "NOASSERTION":
        entry["licenses"] = [{"expression": part.licence}]
    if part.sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
    return entry


def document(parts: list[Part], version: str, when: datetime) -> dict[str, Any]:
    """The whole."""
    whole = f"pkg:generic/penstock@{version}"
    begins = [part.purl for part in parts if part.name in (*ROOTS, "duckdb", "rust-std")]
    content: dict[str, Any] = {
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": whole,
                "name": "penstock",
                "version": version,
                "purl": whole,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [component(part) for part in parts],
        "dependencies": [
            {"ref": whole, "dependsOn": begins},
            *({"ref": part.purl, "dependsOn": list(part.needs)} for part in parts),
        ],
    }
    serial = uuid.uuid5(SPACE, json.dumps(content))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}"}
    return head | {"version": 1} | content


def main() -> None:
    """Prints it."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    when = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    told = document(everything(sys.argv[1:]), manifest["workspace"]["package"]["version"], when)
    json.dump(told, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
