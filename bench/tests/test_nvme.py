"""The tables of `nvme`, from rows made by hand, and the table that it scans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from penstock_bench import customer, nvme, nvme_report
from penstock_bench.config import BENCH
from penstock_bench.contained import contained, why_not


def record(peer: str, run: int, **more: object) -> dict[str, object]:
    """A record of a run."""
    return {"device": "file", "mode": "scan", "scale": 4, "peer": peer, "run": run, **more}


def test_ours_is_told_beside_stock() -> None:
    records = [
        record(peer, run, seconds={"scan": (0.100 + 0.010 * run) * factor})
        for peer, factor in (("single", 2.0), (nvme.OURS, 0.5), (nvme.STOCK, 1.0))
        for run in range(6)
    ]
    lines = nvme_report.text(records).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [nvme.STOCK, nvme.OURS, "single"]
    assert lines[0].startswith("file: scan, SF 4")
    assert lines[1].split()[1:] == ["125.0", "7.6", "6"]
    _, mean, error, runs, ratio, chance = lines[2].split()
    assert (mean, error, runs, ratio) == ("62.5", "3.8", "6", "0.500")
    assert float(chance) < 0.001
    assert float(lines[3].split()[-1]) > 0.999


def test_a_failed_run_is_told_and_not_compared() -> None:
    records = [record(nvme.STOCK, 0, seconds={"scan": 1.0}), record(nvme.OURS, 0, error="no room")]
    assert nvme_report.text(records).splitlines()[-1].endswith("thread run 1: no room")


def test_what_is_absent_is_told() -> None:
    absent = {"device": "file", "mode": "scan", "peer": "xnvme", "absent": "it is not installed"}
    records: list[dict[str, Any]] = [record(nvme.STOCK, 0, seconds={"scan": 1.0}), absent]
    told = nvme_report.text(records).splitlines()[-1]
    assert told == "not measured: file scan xnvme: it is not installed"


def test_a_spill_in_a_container_is_a_table_of_its_own() -> None:
    seconds = {"sort": 1.0}
    records = [
        {**record(peer, run, seconds=seconds), "mode": mode}
        for mode in ("spill", nvme.CONTAINED)
        for peer in (nvme.STOCK, nvme.OURS)
        for run in range(2)
    ]
    heads = [part.splitlines()[0] for part in nvme_report.text(records).split("\n\n")]
    assert [head.split("SF")[0] for head in heads] == ["file: sort, ", "file: sort, contained, "]


def test_a_run_tells_opening_beside_the_scan_and_with_the_lookup(tmp_path: Path) -> None:
    database = tmp_path / "sf1.duckdb"
    customer.make(database, 1)
    rows = customer.rows(1)

    def ran(mode: str, **more: object) -> subprocess.CompletedProcess[str]:
        job = {"mode": mode, "extension": False, "database": str(database), "rows": rows, **more}
        command = [sys.executable, "-m", "penstock_bench.nvme_worker"]
        env = {**os.environ, "PYTHONPATH": str(BENCH)}
        text = json.dumps(job)
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env=env
        )

    assert set(json.loads(ran("scan").stdout)["seconds"]) == {"attach", "scan"}
    assert set(json.loads(ran("lookup", key=rows).stdout)["seconds"]) == {"lookup"}
    failed = ran("lookup", key=rows + 1)
    assert failed.returncode != 0
    assert "not the row 150001" in failed.stderr


def test_a_contained_process_cannot_hold_more() -> None:
    def ends(prefix: list[str], size_mib: int) -> int:
        command = [*prefix, sys.executable, "-c", f"bytearray({size_mib} << 20)"]
        return subprocess.run(command, check=False).returncode

    if why_not():
        with pytest.raises(OSError, match="cgroup"), contained(64 << 20) as prefix:
            ends(prefix, 8)
        return
    with contained(64 << 20) as prefix:
        assert ends(prefix, 8) == 0
        assert ends(prefix, 256) == -signal.SIGKILL


def test_the_table_is_the_same_every_time(tmp_path: Path) -> None:
    answers = []
    for name in ("a", "b"):
        customer.make(tmp_path / name, 1)
        with duckdb.connect(str(tmp_path / name)) as con:
            answers.append(
                con.execute(
                    "SELECT count(*), bit_xor(hash(COLUMNS(*))), min(length(c_comment)),"
                    " min(c_acctbal), max(c_acctbal) FROM customer"
                ).fetchall()
            )
    assert answers[0] == answers[1]
    assert answers[0][0][0] == customer.rows(1)
