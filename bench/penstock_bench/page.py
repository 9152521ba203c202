"""The HTML page of a campaign: picture and every cell, in one self-contained file."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

from penstock_bench.report import HEADINGS, Entry, line, ranking, summary

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
       color: #1c2733; background: #fff; }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2rem }
p.note { color: #566 } img { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: 13px; width: 100%;
        font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #e3e8ee;
         white-space: nowrap }
th { position: sticky; top: 0; background: #f5f7fa }
tr.first td { border-top: 2px solid #c8d2dd } td.won { background: #d9e8f6 }
td.lost { background: #f8d5d0 } tr.failed td { color: #b3261e }
pre { background: #f5f7fa; padding: .8rem; overflow-x: auto; font-size: 12.5px }
div.wide { overflow-x: auto }
"""


def _verdict(ratio: float | None) -> str:
    if ratio is None or 0.95 <= ratio <= 1.05:
        return ""
    return "won" if ratio > 1 else "lost"


def _table(block: list[Entry]) -> str:
    out = ["<div class='wide'><table><tr>"]
    out += [f"<th>{html.escape(name)}</th>" for name in HEADINGS]
    out.append("</tr>")
    previous = None
    for entry in block:
        key = (entry.cell.step, entry.cell.rows)
        failed = "failed" if entry.data.failures else ""
        classes = f"{failed} {'first' if key != previous else ''}".strip()
        verdicts = {
            "wall vs ours": _verdict(entry.ratio),
            "CPU vs ours": _verdict(entry.cpu_ratio),
        }
        previous = key
        cells = [
            f"<td class='{verdicts.get(name, '')}'>{html.escape(text)}</td>"
            for name, text in zip(HEADINGS, line(entry), strict=True)
        ]
        out.append(f"<tr class='{classes}'>{''.join(cells)}</tr>")
    out.append("</table></div>")
    return "".join(out)


def about(record: dict[str, Any]) -> str:
    """One line on where the figures come from."""
    machine, ceiling = record["machine"], record["ceiling"]
    rate = f"{ceiling['loopback_bytes_per_s'] / 1e9:.2f} GB/s"
    dirty = " with uncommitted changes" if record["dirty"] else ""
    versions = ", ".join(f"{name} {number}" for name, number in record.get("versions", {}).items())
    return (
        f"{record['time']}, commit {record['commit'][:12] or 'unknown'}{dirty}; {machine['cpu']}, "
        f"{machine['cores']} cores, Linux {machine['kernel']}; {versions}; profile "
        f"{record['profile']['name']}; raw loopback {rate} "
        f"at {ceiling['loopback_cpu_s_per_gb']:.2f} CPU s/GB, round trip "
        f"{ceiling['loopback_rtt_s'] * 1e6:.0f} µs"
    )


def write(
    path: Path, title: str, found: list[Entry], records: list[dict[str, Any]], picture: Path
) -> None:
    """Writes the page."""
    image = base64.b64encode(picture.read_bytes()).decode()
    blocks: dict[tuple[str, int], list[Entry]] = {}
    for entry in found:
        blocks.setdefault((entry.cell.protocol, entry.cell.threads), []).append(entry)
    versions: dict[str, str] = {}
    for record in records:
        versions |= record.get("versions", {})
    described = {**records[-1], "versions": versions}
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{html.escape(title)}</h1><p class='note'>{html.escape(about(described))}</p>",
        f"<p>{html.escape(summary(found))}.</p>",
        f"<img alt='heatmap of ratios' src='data:image/png;base64,{image}'>",
        "<p class='note'>Medians; in brackets least and most. Ratios are the peer's figure over "
        "Penstock's: above 1 Penstock is better. <em>Limit</em>: round trips of the smallest "
        "request plan, bytes over bandwidth, and DuckDB's time on a local file.</p>",
    ]
    for (protocol, threads), block in blocks.items():
        parts.append(f"<h2>{protocol}, threads = {threads or 'default'}</h2>{_table(block)}")
    parts.append(f"<h2>Distance from the limit</h2><pre>{html.escape(ranking(found))}</pre>")
    stores = sorted({f"{record['protocol']}: {record['store']}" for record in records})
    parts.append(f"<p class='note'>Stores: {html.escape(json.dumps(stores))}</p></html>")
    path.write_text("".join(parts))
