"""One measurement: a fresh process, one DuckDB session, the steps of a workload timed inside.

Reads a job (JSON) from standard input, writes one JSON object to standard output. It judges
nothing: a failed step is recorded as failed and the next one runs.
"""

from __future__ import annotations

import importlib.util
import json
import re
import resource
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import duckdb
import penstock

from penstock_bench import sql
from penstock_bench.config import BUILD
from penstock_bench.figures import same_answer
from penstock_bench.processes import cpu_s


def load_extension(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Loads a peer's extension: ours from this checkout, others straight from their PyPI wheel."""
    if name == "penstock":
        penstock.load(con)
    elif name != "none":
        con.execute(f"LOAD '{packaged_extension(name)}'")


def packaged_extension(name: str) -> Path:
    """Path of an extension inside its PyPI package (nothing is installed into the home)."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package duckdb-extension-{name} is not installed")
    folder = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
    return folder / f"{name}.duckdb_extension"


def server_counters(url: str | None) -> dict[str, int] | None:
    """Requests and bytes since the server's start, as it counts them itself."""
    if not url:
        return None
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - http on loopback
        counters = json.load(answer)
    return {
        "requests": counters["requests"]["total"],
        "bytes_up": counters["bytes_in"],
        "bytes_down": counters["bytes_out"],
    }


def server_cpu_s(pid: int | None) -> float:
    """User and system time of the server so far; none where it is not known."""
    return cpu_s(pid) if pid else 0.0


def mark(url: str | None, step: str) -> None:
    """Tells a recording proxy that a step begins."""
    if url:
        urllib.request.urlopen(f"{url}/{step}", timeout=30).close()  # noqa: S310


def first_line(error: BaseException) -> str:
    """What a failed statement said, short, without anything that looks like a signature."""
    text = str(error).strip().split("\n", 1)[0]
    return re.sub(r"(sig|Signature)=[^&\s]+", r"\1=***", text)[:400]


def connect(job: dict[str, Any], scratch: str) -> duckdb.DuckDBPyConnection:
    """A session with the peer's extension, secret and settings, which may name a directory."""
    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    con.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    con.execute("SET enable_progress_bar = false")
    load_extension(con, job["extension"])
    if job["wrap"]:
        penstock.load(con)
        con.execute(f"CALL penstock_wrap('{job['extension']}')")
    if job["threads"]:
        con.execute(f"SET threads = {int(job['threads'])}")
    secret = sql.create_secret(sql.Endpoint(**job["endpoint"]))
    if secret:
        con.execute(secret)
    for statement in sql.settings(job["settings"]):
        con.execute(statement.replace("{scratch}", scratch))
    return con


def wasted_bytes(con: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> int | None:
    """Bytes that Penstock fetched ahead so far and nobody wanted; None for other peers."""
    if job["extension"] != "penstock":
        return None
    name = "read_ahead_wasted_bytes"
    row = con.execute(f"SELECT value FROM penstock_stats() WHERE name = '{name}'").fetchone()
    return int(row[0]) if row else None


def timed_step(
    con: duckdb.DuckDBPyConnection, job: dict[str, Any], step: dict[str, Any]
) -> dict[str, Any]:
    """Runs one step and says what it cost."""
    statement = sql.fill(step["sql"], job["rows"], job["root"], job["shared"])
    mark(job.get("mark_url"), step["name"])
    wasted = wasted_bytes(con, job)
    counters = server_counters(job["stats_url"])
    server_cpu = server_cpu_s(job["server_pid"])
    proxy_cpu = server_cpu_s(job["proxy_pid"])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    answer, error = [], None
    try:
        answer = con.execute(statement).fetchall()
    except duckdb.Error as failure:
        error = first_line(failure)
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    result: dict[str, Any] = {
        "name": step["name"],
        "wall_s": wall_s,
        "user_s": after.ru_utime - usage.ru_utime,
        "sys_s": after.ru_stime - usage.ru_stime,
        "server_cpu_s": server_cpu_s(job["server_pid"]) - server_cpu,
        "error": error,
    }
    if job["proxy_pid"]:
        result["proxy_cpu_s"] = server_cpu_s(job["proxy_pid"]) - proxy_cpu
    counted = server_counters(job["stats_url"])
    if counters is not None and counted is not None:
        result |= {name: counted[name] - counters[name] for name in counters}
    if wasted is not None:
        result["wasted_bytes"] = (wasted_bytes(con, job) or 0) - wasted
    if step.get("check") and error is None:
        expected = con.execute(sql.fill(step["check"], job["rows"], job["root"])).fetchall()
        if not same_answer(answer, expected):
            result["error"] = f"wrong answer: {answer[:3]} instead of {expected[:3]}"
    return result


def local_files(root: str) -> dict[str, int]:
    """Bytes below each first path element of a local run (``single``, ``parts``, ...)."""
    sizes: dict[str, int] = {}
    for path in Path(root).rglob("*.parquet"):
        name = path.relative_to(root).parts[0].removesuffix(".parquet")
        sizes[name] = sizes.get(name, 0) + path.stat().st_size
    return sizes


def versions(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """DuckDB and its loaded extensions."""
    rows = con.execute(
        "SELECT extension_name, extension_version FROM duckdb_extensions() WHERE loaded"
        " AND install_mode IS DISTINCT FROM 'STATICALLY_LINKED'"
    ).fetchall()
    return {"duckdb": duckdb.__version__, **{name: version or "" for name, version in rows}}


def work(job: dict[str, Any], scratch: str) -> dict[str, Any]:
    """The whole session."""
    con = connect(job, scratch)
    begin = time.perf_counter()
    if job["setup"]:
        con.execute(sql.fill(job["setup"], job["rows"], job["root"]))
    setup_s = time.perf_counter() - begin
    for statement in job["prepare"]:
        con.execute(sql.fill(statement, job["rows"], job["root"], job["shared"]))
    steps = [timed_step(con, job, step) for step in job["steps"]]
    mark(job.get("mark_url"), "end")
    return {
        "steps": steps,
        "setup_s": setup_s,
        "versions": versions(con),
        "duckdb_threads": con.execute("SELECT current_setting('threads')").fetchall()[0][0],
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "file_bytes": local_files(job["root"]) if job["endpoint"]["protocol"] == "file" else {},
    }


def main() -> None:
    """Entry point of the process."""
    job = json.load(sys.stdin)
    if job["endpoint"]["protocol"] == "file":
        Path(job["root"]).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=BUILD) as scratch:
        json.dump(work(job, scratch), sys.stdout)


if __name__ == "__main__":
    main()
