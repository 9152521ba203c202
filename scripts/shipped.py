"""What is compiled into the binary and the extension: crates, and DuckDB's core with its own parts.

Decides what counts as shipped; notices.py and sbom.py print it. Neither cargo-about nor
cargo-cyclonedx does, since half of the extension is C++ that Cargo knows nothing about; and what
takes a second can go into every wheel and package, not only into a release.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("penstock-cli", "penstock-ffi")
"""The packages that are the binary and the engine in the extension."""
LEGAL = re.compile(r"(licen[cs]e|copying|copyright|notices?|unlicense)(?![a-z])", re.I)
"""How files with legal texts begin."""
LEFT_OUT = re.compile("brotli|catch|imdb|jemalloc|lz4|parquet|snappy|snowball|tdigest|thrift|zstd")
"""Folders of DuckDB's third_party that its core is not built from (scripts/duckdb-core.sh)."""
WITHOUT_TEXT = {"alloc-stdlib": "alloc-no-stdlib"}
"""Crates that come without the text of their licence, and others of the same hand with it."""
MIT = (ROOT / "scripts/mit.txt").read_text()
"""For crates under it that have no text: it wants the names of their authors."""


@dataclass(frozen=True)
class Part:
    """Something by others, or of ours."""

    name: str
    version: str
    licence: str
    folder: Path
    kind: str = "cargo"
    sha256: str = ""
    needs: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """Its name among all packages."""
        return f"pkg:{self.kind}/{self.name}@{self.version}"

    def texts(self) -> list[str]:
        """Licences and notices that came with it."""
        files = (path for path in self.folder.iterdir() if path.is_file())
        legal = sorted(path for path in files if LEGAL.match(path.name))
        texts = [path.read_text(errors="replace").strip() for path in legal]
        if not texts and self.licence == "MIT":
            authors = ", ".join(self.authors) or f"the authors of {self.name}"
            return [MIT.replace("AUTHORS", authors)]
        return texts


def printed(*command: str) -> str:
    """What a program prints, which has to succeed."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def is_macro(package: dict[str, Any]) -> bool:
    """Whether it works in the compiler only."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def crates(told: dict[str, Any], lock: str) -> list[Part]:
    """Everything that is compiled in, by what `cargo metadata` says, in the order of names."""
    packages = {package["id"]: package for package in told["packages"]}
    nodes = {node["id"]: node for node in told["resolve"]["nodes"]}
    locked = tomllib.loads(lock)["package"]
    sums = {(it["name"], it["version"]): it.get("checksum", "") for it in locked}

    def needed(of: str) -> list[str]:
        deps = nodes[of]["deps"]
        normal = [dep["pkg"] for dep in deps if any(not it["kind"] for it in dep["dep_kinds"])]
        return [one for one in normal if not is_macro(packages[one])]

    def part(of: str) -> Part:
        package = packages[of]
        name, version = package["name"], package["version"]
        return Part(
            name,
            version,
            (package["license"] or "NOASSERTION").replace("/", " OR "),
            # Our own crates have the licence of the whole.
            Path(package["manifest_path"]).parent if package["source"] else ROOT,
            sha256=sums[name, version],
            needs=tuple(
                sorted(
                    f"pkg:cargo/{packages[it]['name']}@{packages[it]['version']}"
                    for it in needed(of)
                )
            ),
            authors=tuple(package["authors"]),
        )

    todo = [one for one, package in packages.items() if package["name"] in ROOTS]
    reached = set(todo)
    while todo:
        new = [one for one in needed(todo.pop()) if one not in reached]
        reached.update(new)
        todo += new
    return sorted(map(part, reached), key=lambda it: (it.name, it.version))


def of_duckdb(version: str, tree: Path) -> list[Part]:
    """The core that an extension is linked with, and what DuckDB itself has of others."""
    folders = sorted(path for path in (tree / "third_party").iterdir() if path.is_dir())
    inside = [
        Part(f"duckdb-{path.name}", version, "NOASSERTION", path, kind="generic")
        for path in folders
        if not LEFT_OUT.fullmatch(path.name)
    ]
    needs = tuple(part.purl for part in inside)
    return [Part("duckdb", version, "MIT", tree, kind="generic", needs=needs), *inside]


def everything(versions: Iterable[str]) -> list[Part]:
    """All of it, for extensions of these versions of DuckDB."""
    command = ["cargo", "metadata", "--locked", "--format-version=1"]
    told = json.loads(printed(*command, "--filter-platform=x86_64-unknown-linux-gnu"))
    parts = crates(told, (ROOT / "Cargo.lock").read_text())
    compiler = printed("rustc", "--version").split()[1]
    # Of its two licences ours is taken, so LICENSE is its text.
    parts.append(Part("rust-std", compiler, "MIT OR Apache-2.0", ROOT, kind="generic"))
    for version in versions:
        tree = printed(str(ROOT / "scripts/duckdb-sources.sh"), "tree", version)
        parts += of_duckdb(version, Path(tree))
    return parts


def texts_of(parts: list[Part]) -> dict[str, list[str]]:
    """Legal text to those that it came with; a part without one is an error."""
    by_name = {part.name: part for part in parts}
    found: dict[str, list[str]] = {}
    for part in parts:
        texts = by_name.get(WITHOUT_TEXT.get(part.name, ""), part).texts()
        if not texts:
            raise ValueError(f"{part.purl} has no text of its licence: add it to WITHOUT_TEXT")
        for text in texts:
            found.setdefault(text, []).append(f"{part.name} {part.version}")
    return found
