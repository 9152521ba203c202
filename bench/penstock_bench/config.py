"""The declarative side: workloads and peers, read from TOML. Pure but for reading the files.

An unknown key is an error: a misspelt setting must not silently measure something else.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent
BUILD = ROOT / "build"
OUT = BUILD / "bench"

PROTOCOLS = ("s3", "azure", "file")
OPTIONAL = {"setup", "prepare", "fresh_store", "shared", "modes", "peers", "local"}
"""Keys that a workload may do without."""
# Workloads that are programs of their own and have no file.
PROGRAMS = ("footprint", "gateway", "gateway_requests", "nvme", "nvme_raw", "replay", "soak")


class ConfigError(Exception):
    """A workload or peer file says something that cannot be; the message names file and key."""


@dataclass(frozen=True)
class Limit:
    """The smallest request plan of a step: dependent round trips, and which bytes must move."""

    s3: int
    azure: int
    s3_large: int | None = None
    """Round trips when more than ``large_over`` bytes must move; None: the same."""
    azure_large: int | None = None
    large_over: int = 8 << 20
    bytes: str | None = None
    """What must cross the wire: the files below a first path element of the local run, ``least``
    for the least that any peer moved, or None for nothing."""
    direction: str = "down"

    def round_trips(self, protocol: str, size_bytes: float) -> int:
        """Dependent round trips when this many bytes must move."""
        small = {"s3": self.s3, "azure": self.azure, "file": 0}[protocol]
        large = {"s3": self.s3_large, "azure": self.azure_large, "file": 0}[protocol]
        return small if large is None or size_bytes <= self.large_over else large


@dataclass(frozen=True)
class Step:
    """One timed statement; ``check`` is the statement whose answer must be the same."""

    name: str
    title: str
    sql: str
    check: str | None = None
    per_gb: bool = False
    limit: Limit = field(default_factory=lambda: Limit(0, 0))


@dataclass(frozen=True)
class Workload:
    """A session of timed steps at several sizes."""

    name: str
    title: str
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    runs: int
    quick_runs: int
    protocols: tuple[str, ...]
    setup: str
    prepare: tuple[str, ...]
    fresh_store: bool
    """A store of its own for every run, because runs leave much behind."""
    shared: tuple[str, ...]
    """Statements that write what all runs read, once for each store, through Penstock."""
    modes: bool
    """Its peers, threads and steps come from `modes.py`."""
    peers: tuple[str, ...]
    """Those it is for; empty: all that are not ``by_name``."""
    local: bool
    """Measured on a local file, too, from which limits come."""
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Peer:
    """A way to reach storage from DuckDB: an extension and settings."""

    name: str
    title: str
    extension: str
    protocols: tuple[str, ...]
    settings: dict[str, str | bool | int]
    wrap: bool = False
    """Wrapped by Penstock."""
    by_name: bool = False
    """Measured only where a workload or the command line names it."""
    duckdb: str | None = None
    """The DuckDB that runs it, where it is not that of ``build/venv``."""


def _take(table: dict[str, Any], where: str, required: set[str], optional: set[str]) -> None:
    unknown = table.keys() - required - optional
    missing = required - table.keys()
    if unknown:
        raise ConfigError(f"{where}: unknown key {', '.join(sorted(unknown))}")
    if missing:
        raise ConfigError(f"{where}: missing key {', '.join(sorted(missing))}")


def _protocols(value: list[str], where: str) -> tuple[str, ...]:
    for name in value:
        if name not in PROTOCOLS:
            raise ConfigError(f"{where}: unknown protocol {name}; known: {', '.join(PROTOCOLS)}")
    return tuple(value)


def parse_step(table: dict[str, Any], where: str) -> Step:
    """One ``[[step]]`` table."""
    _take(table, where, {"name", "title", "sql"}, {"check", "per_gb", "limit"})
    limit = table.get("limit", {"s3": 0, "azure": 0})
    _take(
        limit,
        f"{where}.limit",
        {"s3", "azure"},
        {"s3_large", "azure_large", "large_over", "bytes", "direction"},
    )
    return Step(**{**table, "limit": Limit(**limit)})


def parse_workload(text: str, name: str) -> Workload:
    """A workload from the text of its file."""
    table = tomllib.loads(text)
    required = {"title", "sizes", "quick_sizes", "runs", "quick_runs", "protocols", "step"}
    _take(table, name, required, OPTIONAL)
    steps = tuple(
        parse_step(step, f"{name}.step[{index}]") for index, step in enumerate(table.pop("step"))
    )
    names = [step.name for step in steps]
    if len(set(names)) != len(names):
        raise ConfigError(f"{name}: two steps of one name")
    return Workload(
        name=name,
        title=table["title"],
        sizes=tuple(table["sizes"]),
        quick_sizes=tuple(table["quick_sizes"]),
        runs=table["runs"],
        quick_runs=table["quick_runs"],
        protocols=_protocols(table["protocols"], name),
        setup=table.get("setup", ""),
        fresh_store=table.get("fresh_store", False),
        prepare=tuple(table.get("prepare", ())),
        shared=tuple(table.get("shared", ())),
        modes=table.get("modes", False),
        peers=tuple(table.get("peers", ())),
        local=table.get("local", True),
        steps=steps,
    )


def parse_peer(text: str, name: str) -> Peer:
    """A peer from the text of its file."""
    table = tomllib.loads(text)
    optional = {"settings", "wrap", "by_name", "duckdb"}
    _take(table, name, {"title", "extension", "protocols"}, optional)
    if table["extension"] not in ("penstock", "azure", "httpfs", "none"):
        raise ConfigError(f"{name}: unknown extension {table['extension']}")
    return Peer(
        name=name,
        title=table["title"],
        extension=table["extension"],
        protocols=_protocols(table["protocols"], name),
        settings=table.get("settings", {}),
        wrap=table.get("wrap", False),
        by_name=table.get("by_name", False),
        duckdb=table.get("duckdb"),
    )


def narrowed(workload: Workload, protocols: str, steps: str) -> Workload:
    """The same with these protocols and steps only, from lists such as ``s3,azure``; empty: all."""
    kept = {"protocols": workload.protocols, "steps": tuple(step.name for step in workload.steps)}
    for what, text in (("protocols", protocols), ("steps", steps)):
        wanted = text.replace(",", " ").split()
        unknown = [name for name in wanted if name not in kept[what]]
        if unknown:
            known = ", ".join(kept[what])
            raise ConfigError(
                f"{workload.name} has no {what} {', '.join(unknown)}; it has: {known}"
            )
        kept[what] = tuple(name for name in kept[what] if name in wanted or not wanted)
    return replace(
        workload,
        protocols=kept["protocols"],
        steps=tuple(step for step in workload.steps if step.name in kept["steps"]),
    )


def load_workload(name: str) -> Workload:
    """The workload of this name in ``bench/workloads``."""
    path = BENCH / "workloads" / f"{name}.toml"
    if not path.is_file():
        known = sorted([*(file.stem for file in path.parent.glob("*.toml")), *PROGRAMS])
        raise ConfigError(f"no workload {name}; there are: {', '.join(known)}")
    return parse_workload(path.read_text(), name)


def load_peers() -> dict[str, Peer]:
    """All peers in ``bench/peers``, by name."""
    return {
        file.stem: parse_peer(file.read_text(), file.stem)
        for file in sorted((BENCH / "peers").glob("*.toml"))
    }
