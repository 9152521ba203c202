"""The workload `footprint`: sizes, times to the first use, memory at rest. One row a figure.

Measures the files of `make build` and `make wheel`, and compares each figure with its limit. The
extension is measured for each DuckDB whose wheel and self-contained extension are in build/. The
start of the gateway is seen to 10 ms.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb

from penstock_bench import records
from penstock_bench.config import BUILD
from penstock_bench.gateway_report import table
from penstock_bench.processes import Server, free_port, peak_rss_bytes

NAME = "footprint"
RUNS, QUICK_RUNS = 9, 3
LIMITS = {
    "gateway binary, stripped": (30e6, "MB"),
    "gateway until it listens": (0.050, "ms"),
    "gateway at rest, resident": (20e6, "MB"),
    "extension, stripped": (25e6, "MB"),
    "LOAD": (0.010, "ms"),
    "wheel": (60e6, "MB"),
}
"""Figure to its limit in bytes or seconds, and the unit in which it is shown."""
SCALE = {"MB": 1e-6, "ms": 1e3}
LOAD = """
import json, sys, time
import duckdb
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
begin = time.perf_counter()
con.execute(f"LOAD '{sys.argv[1]}'")
print(json.dumps(time.perf_counter() - begin))
"""


def stripped_bytes(binary: Path) -> float:
    """The size of a program without its symbols, as packages hold it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / binary.name
        subprocess.run(["strip", "--strip-unneeded", "-o", out, binary], check=True)
        return out.stat().st_size


def gateway(runs: int) -> Iterator[tuple[str, str, float]]:
    """Seconds from the start of the process until its port listens, and its memory then."""
    binary = BUILD / "penstock"
    yield "gateway binary, stripped", "", stripped_bytes(binary)
    environment = {**os.environ, "PENSTOCK_ACCESS_KEY": "bench", "PENSTOCK_SECRET_KEY": "bench" * 4}
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        for _ in range(runs):
            port = free_port()
            words = [str(binary), "serve", "--dir", folder, "--listen", f"127.0.0.1:{port}"]
            begin = time.perf_counter()
            server = Server(words, port, Path(folder) / ".log", environment)
            listens_s = time.perf_counter() - begin
            resident = peak_rss_bytes(server.pid)
            server.stop()
            yield "gateway until it listens", "", listens_s
            yield "gateway at rest, resident", "", resident


def extensions(runs: int) -> Iterator[tuple[str, str, float]]:
    """Of each extension that is shipped: its size, and LOAD in fresh processes."""
    for file in sorted((BUILD / "duckdb").glob("v*/penstock.duckdb_extension")):
        version = file.parent.name.removeprefix("v")
        wheel = BUILD / f"duckdb-wheel-{version}"
        is_shipped = not (file.parent / "libduckdb.so").exists()
        if not is_shipped or not (wheel.is_dir() or version == duckdb.__version__):
            continue
        of = f"DuckDB {version}"
        yield "extension, stripped", of, file.stat().st_size
        environment = {**os.environ, "PYTHONPATH": str(wheel) if wheel.is_dir() else ""}
        for _ in range(runs):
            command = [sys.executable, "-c", LOAD, str(file)]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            yield "LOAD", of, json.loads(done.stdout)


def wheels(_: int) -> Iterator[tuple[str, str, float]]:
    """The size of the wheel that was made last, and the versions of DuckDB in it."""
    for file in (BUILD / "dist").glob("penstock-*.whl"):
        listed = subprocess.run(
            [sys.executable, "-m", "zipfile", "-l", file],
            capture_output=True,
            text=True,
            check=True,
        )
        versions = re.findall(r"duckdb/v([0-9.]+)/", listed.stdout)
        yield "wheel", "DuckDB " + ", ".join(sorted(versions)), file.stat().st_size


PARTS: tuple[Callable[[int], Iterator[tuple[str, str, float]]], ...] = (gateway, extensions, wheels)


def run(runs: int, out: Path, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measures all parts; one record a value."""
    kept = records.Records(NAME, out)
    for part in PARTS:
        progress(part.__name__)
        began = records.begin()
        for figure, of, value in part(runs):
            kept.add(began, {"figure": figure, "of": of, "value": value})
            began = records.begin()
    return kept.all


def medians(found: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Figure and what it is of, to the median of its values."""
    keys = dict.fromkeys((record["figure"], record["of"]) for record in found)
    return {
        key: statistics.median(r["value"] for r in found if (r["figure"], r["of"]) == key)
        for key in keys
    }


def text(found: list[dict[str, Any]]) -> str:
    """The table: each figure, its limit, and whether it holds."""
    rows = [["figure", "of", "median", "limit", ""]]
    for (figure, of), value in medians(found).items():
        limit, unit = LIMITS[figure]
        verdict = "holds" if value <= limit else "OVER"
        shown = [f"{amount * SCALE[unit]:.3g} {unit}" for amount in (value, limit)]
        rows.append([figure, of, *shown, verdict])
    return table(rows)


def has_failed(found: list[dict[str, Any]]) -> bool:
    """Whether a figure is over its limit."""
    return any(value > LIMITS[figure][0] for (figure, _), value in medians(found).items())
