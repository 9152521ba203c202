"""Raw records to something to read: a terminal table, a ranking against limits. Pure text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock_bench import figures
from penstock_bench.config import Peer, Workload
from penstock_bench.figures import Cell, Link, PeerCell, Row, Summary, Table

OURS = "penstock"


def rows_label(rows: int) -> str:
    """``5k``, ``2M``."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if rows >= size and rows % size == 0:
            return f"{rows // size}{unit}"
    return f"{rows}"


def seconds(value: float) -> str:
    """Three digits: ``1.23 s``, ``45.6 ms``."""
    if value >= 0.9995:
        return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"
    return f"{value * 1000:.3g} ms"


def amount(value: float) -> str:
    """Bytes with a decimal unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def spread(summary: Summary | None) -> str:
    """Median and range of a time: ``12.3 ms (11.9-14)``."""
    if summary is None:
        return "-"
    text = seconds(summary.median)
    if summary.runs > 1:
        scale = 1 if summary.median >= 1 else 1000
        text += f" ({summary.low * scale:.3g}-{summary.high * scale:.3g})"
    return text


def times(value: float | None) -> str:
    """A ratio."""
    return "-" if value is None else f"{value:.2f}x"


def local_cell(table: Table, cell: Cell) -> PeerCell | None:
    """The local-file cell of the same step."""
    return table.get(Cell("file", cell.step, cell.rows, cell.threads), {}).get("local")


def file_sizes(records: list[Row], rows: int) -> dict[str, int]:
    """Bytes that a local run of this size wrote."""
    for record in records:
        if record["rows"] == rows and record.get("file_bytes"):
            return dict(record["file_bytes"])
    return {}


@dataclass(frozen=True)
class Entry:
    """One peer in one cell, ready to be shown."""

    cell: Cell
    step_title: str
    peer: str
    peer_title: str
    data: PeerCell
    ratio: float | None
    """The peer's wall time over ours; None for ourselves."""
    cpu_ratio: float | None
    limit_s: float | None
    per_gb: bool
    """Whether client CPU is to be read per gigabyte moved."""
    is_ours: bool = False
    """Penstock, in its default settings or others."""


def entries(
    workload: Workload, peers: dict[str, Peer], records: list[Row], link: Link
) -> list[Entry]:
    """All cells in the order of the workload: protocol, step, size, threads, ours first."""
    table = figures.tabulate(records)
    per_gb = {step.name for step in workload.steps if step.per_gb}
    titles = {step.name: step.title for step in workload.steps}
    order = {step.name: index for index, step in enumerate(workload.steps)}
    cells = sorted(
        (cell for cell in table if cell.protocol != "file"),
        key=lambda cell: (cell.protocol, cell.threads, order[cell.step], cell.rows),
    )
    found = []
    for cell in cells:
        ours = table[cell].get(OURS)
        sizes = {**file_sizes(records, cell.rows), "least": figures.least_bytes(table[cell])}
        limit = figures.limit_s(workload, cell, link, local_cell(table, cell), sizes)
        for peer in sorted(table[cell], key=lambda name: (name != OURS, name)):
            data = table[cell][peer]
            is_default = peer == OURS
            known = peers.get(peer)
            found.append(
                Entry(
                    cell=cell,
                    step_title=titles[cell.step],
                    peer=peer,
                    peer_title=peers[peer].title if peer in peers else peer,
                    data=data,
                    ratio=None if is_default else figures.ratio(data, ours),
                    cpu_ratio=None if is_default else figures.ratio(data, ours, "cpu_s"),
                    limit_s=limit,
                    per_gb=cell.step in per_gb,
                    is_ours=is_default or (known is not None and known.extension == OURS),
                )
            )
    return found


HEADINGS = (
    "step",
    "rows",
    "peer",
    "wall (range)",
    "client CPU",
    "requests",
    "bytes",
    "limit",
    "wall vs ours",
    "CPU vs ours",
)


def cpu_text(entry: Entry) -> str:
    """Client CPU, per gigabyte where the workload asks for it."""
    cpu, size = entry.data.measures.get("cpu_s"), entry.data.measures.get("bytes")
    if cpu is None:
        return "-"
    if entry.per_gb and size is not None and size.median > 0:
        return f"{cpu.median / (size.median / 1e9):.3f} s/GB"
    return seconds(cpu.median)


def line(entry: Entry) -> tuple[str, ...]:
    """One entry as the columns of `HEADINGS`; a failure is shown in place of the figures."""
    cell, data = entry.cell, entry.data
    head = (entry.step_title, rows_label(cell.rows), entry.peer_title)
    if data.failures:
        return (*head, f"FAILED: {data.failures[0][:60]}", "", "", "", "", "", "")
    get = data.measures.get
    requests, size = get("requests"), get("bytes")
    return (
        *head,
        spread(get("wall_s")),
        cpu_text(entry),
        f"{requests.median:.0f}" if requests else "-",
        amount(size.median) if size else "-",
        seconds(entry.limit_s) if entry.limit_s is not None else "-",
        times(entry.ratio),
        times(entry.cpu_ratio),
    )


def terminal(found: list[Entry], color: bool) -> str:
    """The table, one block per protocol and thread count; red where we are slower."""
    blocks: dict[tuple[str, int], list[Entry]] = {}
    for entry in found:
        blocks.setdefault((entry.cell.protocol, entry.cell.threads), []).append(entry)
    out = []
    for (protocol, threads), block in blocks.items():
        out.append(f"\n{protocol}, threads = {threads or 'default'}")
        lines = [line(entry) for entry in block]
        widths = [max(len(row[i]) for row in [HEADINGS, *lines]) for i in range(len(HEADINGS))]
        out.append("  ".join(text.ljust(w) for text, w in zip(HEADINGS, widths, strict=True)))
        previous = None
        for entry, row in zip(block, lines, strict=True):
            key = (entry.cell.step, entry.cell.rows)
            shown = row if key != previous else ("", "", *row[2:])
            previous = key
            text = "  ".join(word.ljust(w) for word, w in zip(shown, widths, strict=True)).rstrip()
            out.append(paint(text, entry) if color else text)
    return "\n".join(out)


# Below that a cell is round trips.
SHARE_BYTES_MIN = 10e6


def link_shares(found: list[Entry], down_mbit: int, tcp_bytes_per_s: float | None) -> str:
    """How full the link was: of its rate, and of what a bare TCP stream brought over it.

    Empty where the network has no rate, or nothing moved enough.
    """
    lines = []
    for entry in found:
        size = entry.data.measures.get("bytes")
        if not down_mbit or size is None or size.median < SHARE_BYTES_MIN:
            continue
        shares = figures.link_shares(entry.data, down_mbit * 125_000, tcp_bytes_per_s)
        if shares is None:
            continue
        of_rate, of_tcp = shares
        lines.append(
            f"{of_rate * 100:11.1f}%  {'-' if of_tcp is None else f'{of_tcp * 100:.1f}%':>18}  "
            f"{entry.peer_title}: {entry.cell.protocol} {entry.step_title}, "
            f"{rows_label(entry.cell.rows)} rows, threads={entry.cell.threads or 'default'}"
        )
    if not lines:
        return ""
    told = "" if tcp_bytes_per_s is None else f", which is {tcp_bytes_per_s / 1e6:.1f} MB/s"
    head = f"Of the link's {down_mbit} Mbit/s, and of what a bare TCP stream brings over it{told}:"
    return "\n".join([head, "of its rate  of the bare stream  peer and cell", *lines])


def paint(text: str, entry: Entry) -> str:
    """Red for a failure and where a peer beats us, green where we win by a tenth or more."""
    if entry.data.failures or (entry.ratio is not None and entry.ratio < 0.95):
        return f"\033[31m{text}\033[0m"
    if entry.ratio is not None and entry.ratio > 1.05:
        return f"\033[32m{text}\033[0m"
    return text


def summary(found: list[Entry]) -> str:
    """Comparisons won, level and lost, and cells that failed.

    The same for the best of our settings against the best peer, where we were run in several.
    """
    ratios = [entry.ratio for entry in found if entry.ratio is not None and not entry.is_ours]
    failed = sum(bool(entry.data.failures) for entry in found)
    text = (
        f"{len(ratios)} comparisons of wall time: Penstock {outcome(ratios)}; "
        f"{failed} cells with failed runs"
    )
    if any(entry.is_ours and entry.peer != OURS for entry in found):
        best = best_ratios(found)
        text += f". Best settings against best peer, {len(best)} cells: {outcome(best)}"
    return text


def outcome(ratios: list[float]) -> str:
    """Wins, draws (within 5 %) and losses."""
    won = sum(ratio > 1.05 for ratio in ratios)
    lost = sum(ratio < 0.95 for ratio in ratios)
    return f"faster in {won}, level in {len(ratios) - won - lost}, slower in {lost}"


def best_ratios(found: list[Entry]) -> list[float]:
    """For each cell the least median of any peer, over the least of ours."""
    cells: dict[Cell, dict[bool, list[float]]] = {}
    for entry in found:
        wall = entry.data.measures.get("wall_s")
        if wall is not None and wall.median > 0 and not entry.data.failures:
            sides = cells.setdefault(entry.cell, {True: [], False: []})
            sides[entry.is_ours].append(wall.median)
    both = [sides for sides in cells.values() if sides[True] and sides[False]]
    return [min(sides[False]) / min(sides[True]) for sides in both]


def errors(records: list[Row]) -> list[str]:
    """Every different failure, of any peer, with the cells it hit first."""
    first: dict[tuple[str, str, str], str] = {}
    for record in records:
        for step in record["steps"]:
            if step.get("error"):
                where = f"{record['peer']} {record['protocol']} {step['name']} {record['rows']}"
                # Runs differ in where they write.
                kind = re.sub(r"\S+://\S+", "URL", step["error"])
                first.setdefault(
                    (record["peer"], record["protocol"], kind), f"{where}: {step['error']}"
                )
    return list(first.values())


def ranking(found: list[Entry]) -> str:
    """Our cells by how far they are above their limit, worst first.

    Beside it stands the CPU that the store took for the step: the limit holds for a store that
    takes none, and one of a single thread (Azurite) serves what comes at once one by one.
    """
    ours = [
        (entry.data.measures["wall_s"].median / entry.limit_s, entry)
        for entry in found
        if entry.peer == OURS and entry.limit_s and "wall_s" in entry.data.measures
    ]
    ours.sort(key=lambda pair: -pair[0])
    lines = ["over limit  wall        limit       store CPU   requests  cell"]
    for over, entry in ours:
        requests = entry.data.measures.get("requests")
        store = entry.data.measures.get("server_cpu_s")
        cell = entry.cell
        lines.append(
            f"{over:9.2f}x  {seconds(entry.data.measures['wall_s'].median):<11} "
            f"{seconds(entry.limit_s or 0):<11} "
            f"{seconds(store.median) if store else '-':<11} "
            f"{f'{requests.median:.0f}' if requests else '-':<9} "
            f"{cell.protocol} {entry.step_title}, {rows_label(cell.rows)} rows"
            f"{f', threads={cell.threads}' if cell.threads else ''}"
        )
    return "\n".join(lines)
