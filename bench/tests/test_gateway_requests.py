"""The table of requests behind gateways, and when a run of it has failed."""

from typing import Any

from penstock_bench import apart, gateway_requests
from penstock_bench.gateway_requests import OPERATIONS, has_failed, text


def record(peer: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"workload": gateway_requests.NAME, "peer": peer, "steps": list(steps)}


def row(table: str, name: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"{name}  "))


def test_a_cell_tells_how_many_and_which() -> None:
    ours = record("penstock", {"name": "GetObject, range", "requests": {"GetBlob": 1}})
    other = {"name": "GetObject, range", "requests": {"GetBlob": 5, "GetBlobProperties": 1}}
    table = text([ours, record("s3proxy", other)])
    assert row(table, "GetObject, range").split("  ")[-1] == "6 (5 GetBlob, GetBlobProperties)"
    assert " 1 (GetBlob) " in row(table, "GetObject, range")
    assert row(table, "HeadObject").split()[1:] == ["-", "-"]
    assert all(
        any(line.startswith(title) for line in table.splitlines()) for title, _ in OPERATIONS
    )
    assert apart.told([ours]) == text([ours])


def test_what_failed_is_told_and_only_ours_counts() -> None:
    failed = {"name": "HeadObject", "requests": {}, "error": "no such thing"}
    fine = record("penstock", {"name": "HeadObject", "requests": {"GetBlobProperties": 1}})
    theirs = record("s3proxy", failed)
    table = text([fine, theirs])
    assert row(table, "HeadObject").endswith("0, failed")
    assert "failed: s3proxy: HeadObject: no such thing" in table
    assert not has_failed([fine, theirs], "penstock")
    assert has_failed([record("penstock", failed)], "penstock")
    assert has_failed([record("penstock") | {"error": "did not start"}], "penstock")
