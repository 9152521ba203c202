"""A trace of the recording proxy as text: what was asked, when, and what waited for what. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from penstock_bench.report import amount

Line = dict[str, Any]


def round_trips(lines: list[Line]) -> int:
    """Requests that began only after an earlier one had ended: the depth of the request plan.

    Counted as the longest chain in which each request begins after the end of the one before it.
    """
    depth: list[tuple[float, int]] = []
    for line in sorted(lines, key=lambda line: line["begin_s"]):
        before = max((n for end, n in depth if end <= line["begin_s"]), default=0)
        depth.append((line["end_s"], before + 1))
    return max((n for _, n in depth), default=0)


def short_target(target: str) -> str:
    """Last two path elements and the query, as far as it tells something."""
    path, _, query = target.partition("?")
    words = [
        word
        for word in query.split("&")
        if word and not word.lower().startswith(("x-amz-", "se=", "sp=", "sv=", "sr="))
    ]
    name = "/".join(unquote(path).split("/")[-2:])
    return f"{name}?{'&'.join(words)}"[:60] if words else name[-60:]


def timeline(lines: list[Line]) -> str:
    """One block per step in the order of the trace."""
    steps: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["begin_s"]):
        if line["step"]:
            steps.setdefault(line["step"], []).append(line)
    out = []
    for name, mine in steps.items():
        start = mine[0]["begin_s"]
        span_ms = (max(line["end_s"] for line in mine) - start) * 1000
        connections = len({line["connection"] for line in mine})
        out.append(
            f"{name}: {len(mine)} requests, {round_trips(mine)} deep, {connections} connections, "
            f"{span_ms:.1f} ms"
        )
        out += [f"  {_line(line, start)}".rstrip() for line in mine]
    return "\n".join(out)


def _line(line: Line, start_s: float) -> str:
    begin_ms = (line["begin_s"] - start_s) * 1000
    took_ms = (line["end_s"] - line["begin_s"]) * 1000
    up, down = amount(line["bytes_up"]), amount(line["bytes_down"])
    return (
        f"{begin_ms:8.1f} +{took_ms:7.1f} ms  #{line['connection']:<3} {line['method']:<6} "
        f"{line['status']} up {up:>7} down {down:>7}  {short_target(line['target'])}  "
        f"{line['range']}"
    )
