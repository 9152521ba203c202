"""Which functions a running gateway calls: prints `crates/cli/called.txt`.

Runs the gateway of `build` under Valgrind's callgrind before each back end, with the mixed traffic
of the soak and some of the loads of the gateway's workload, and prints the names of what was
called, without what differs from build to build. `crates/cli/build.rs` lays the binary out by them.

    PYTHONPATH=bench build/venv/bin/python -m penstock_bench.called > crates/cli/called.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock_bench import gateway_campaign, load, soak
from penstock_bench.config import BUILD
from penstock_bench.gateways import Lane
from penstock_bench.stores import make_s3_bucket

STORES = ("directory", "azure-fake", "s3-fake")
DURATION_S, RATE_PER_S = 20, 20
"""Of the mixed traffic; Valgrind is fifty times slower than the machine."""
LOADS = (("get_64k", 40), ("put_64k", 40), ("put_16m", 4), ("get_16m", 4))
VALGRIND = ("valgrind", "--tool=callgrind", "--demangle=no", "--compress-strings=no")
MOSTLY, HARDLY = 0.5, 0.3
"""Shares of the bytes of a name that were called."""
_HASH = re.compile(r"17h[0-9a-f]{16}E.*$")
_CRATE = re.compile(r"Cs[0-9A-Za-z]+_(?=[0-9])")
_RECURSION = re.compile(r"'\d+$")


@dataclass(frozen=True)
class Function:
    """A function of the binary."""

    symbol: str
    size: int
    crate: str
    """In whose objects it is; empty where the binary does not tell."""


def plain(symbol: str) -> str | None:
    """A Rust symbol without what differs from build to build; None for those of other languages.

    >>> plain("_ZN5tokio4park17h0123456789abcdefE.llvm.77")
    '_ZN5tokio4park'
    >>> plain("_RNvNtCslNYArtu3iFV_5alloc6string3new")
    '_RNvNtCs*_5alloc6string3new'
    >>> plain("memcpy")
    """
    if symbol.startswith("_ZN"):
        bare, found = _HASH.subn("", symbol)
        return bare if found else None
    return _CRATE.sub("Cs*_", symbol.partition(".")[0]) if symbol.startswith("_R") else None


def called(profile: Iterable[str], binary: str) -> Iterator[str]:
    """The symbols of a binary that a profile of callgrind says were entered."""
    is_ours = False
    for line in profile:
        word, _, value = line.rstrip("\n").partition("=")
        if word == "ob":
            is_ours = value.endswith(binary)
        elif word == "fn" and is_ours:
            yield _RECURSION.sub("", value)


def functions(symbols: Iterable[str]) -> Iterator[Function]:
    """The functions that `readelf --symbols --wide` lists. Each object's own follow its name."""
    crate = ""
    for line in symbols:
        fields = line.split()
        if len(fields) != 8 or not fields[0].rstrip(":").isdigit():
            continue
        size, kind, bind, symbol = int(fields[2], 0), fields[3], fields[4], fields[7]
        if kind == "FILE":
            crate = symbol.partition(".")[0] if "-cgu." in symbol else ""
        elif kind == "FUNC" and size:
            yield Function(symbol, size, crate if bind == "LOCAL" else "")


def ordered(runs: Sequence[set[str]], every: Sequence[Function]) -> list[str]:
    """The list: what all runs called, then what some did.

    A name may be that of many functions, one for each type that it is made for. Where most of their
    bytes were never called, the crates are named whose objects hold those that were; names of which
    hardly a byte was called come last, so that they lie apart from the others.
    """
    by_name = _shares(runs, every, lambda function: plain(function.symbol))

    def entry(function: Function) -> str | None:
        name = plain(function.symbol)
        if name is None or by_name[name][0] >= MOSTLY or not function.crate:
            return name
        return f"{name} {function.crate}"

    shares = _shares(runs, every, entry)
    found = [(share < HARDLY, -len(by), sorted(by), name) for name, (share, by) in shares.items()]
    return [name for *_, by, name in sorted(found) if by]


def _shares(
    runs: Sequence[set[str]], every: Iterable[Function], entry: Callable[[Function], str | None]
) -> dict[str, tuple[float, set[int]]]:
    """For each entry the share of its bytes that was called, and by which runs."""
    all_bytes, hit_bytes = Counter[str](), Counter[str]()
    by: dict[str, set[int]] = {}
    for function in every:
        name = entry(function)
        if name is None:
            continue
        callers = {number for number, run in enumerate(runs) if function.symbol in run}
        by.setdefault(name, set()).update(callers)
        all_bytes[name] += function.size
        hit_bytes[name] += function.size if callers else 0
    return {name: (hit_bytes[name] / all_bytes[name], by[name]) for name in by}


def profiled(store: str, scratch: Path) -> set[str]:
    """The functions that a gateway before this back end calls from its start to its end."""
    wrapped, profile = scratch / store, scratch / f"{store}.profile"
    wrapped.mkdir()
    words = " ".join([*VALGRIND, f"--callgrind-out-file={profile}", str(BUILD / "penstock")])
    (wrapped / "penstock").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (wrapped / "penstock").chmod(0o755)
    (wrapped / "penstock-fake").symlink_to(BUILD / "penstock-fake")
    lane = Lane("penstock", store, scratch / f"soak-{store}", build=wrapped)
    record = soak.soak(lane, "plain", DURATION_S, RATE_PER_S, lambda _: None)
    print(f"{store}: {sum(record['done'].values())} requests", file=sys.stderr)
    with profile.open() as lines:
        found = set(called(lines, "/penstock"))
    with Lane("penstock", store, scratch / f"load-{store}", build=wrapped) as server:
        make_s3_bucket(server.url, gateway_campaign.BUCKET)
        for name, count in LOADS:
            step = next(step for step in gateway_campaign.STEPS if step.name == name)
            key = f"read-{name}"
            load.run(server, [gateway_campaign.upload(server, key, step.size)], 1, 1)
            load.run(server, gateway_campaign.requests(server, step), count, step.connections)
    with profile.open() as lines:
        return found.union(called(lines, "/penstock"))


def main() -> None:
    """Prints the list."""
    with tempfile.TemporaryDirectory(prefix="penstock-called-") as scratch:
        runs = [profiled(store, Path(scratch)) for store in STORES]
    listing = ["readelf", "--symbols", "--wide", str(BUILD / "penstock")]
    symbols = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True)
    print("\n".join(ordered(runs, list(functions(symbols.stdout.splitlines())))))


if __name__ == "__main__":
    main()
