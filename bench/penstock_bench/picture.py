"""The heatmap: how many times faster Penstock is than each peer, per step and size."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from penstock_bench.report import OURS, Entry, rows_label

# Blue where Penstock is faster, red where it is slower; the scale is logarithmic and symmetric, so
# that red is as loud as blue.
COLORS = "RdBu"
LIMIT_LOG2 = 3.0


def panels(found: list[Entry]) -> list[tuple[str, str, str]]:
    """(protocol, peer, title) of each panel, in order."""
    seen = {
        (entry.cell.protocol, entry.peer): entry.peer_title for entry in found if entry.peer != OURS
    }
    scheme = {"azure": "az://", "s3": "s3://"}
    return [
        (protocol, peer, f"{scheme.get(protocol, protocol)}  Penstock vs {title}")
        for (protocol, peer), title in seen.items()
    ]


def heatmap(found: list[Entry], title: str, subtitle: str, path: Path) -> None:
    """Writes the PNG; only rows at DuckDB's default number of threads are drawn."""
    found = [entry for entry in found if entry.cell.threads == 0] or found
    shown = panels(found)
    steps = list(dict.fromkeys(entry.step_title for entry in found))
    sizes = sorted({entry.cell.rows for entry in found})
    columns = min(2, len(shown)) or 1
    rows = max(1, math.ceil(len(shown) / columns))
    width = 2.6 + 1.15 * len(sizes)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width * columns, 1.3 + (1.25 + 0.5 * len(steps)) * rows),
        squeeze=False,
        layout="constrained",
    )
    for index, axis in enumerate(axes.flat):
        if index >= len(shown):
            axis.axis("off")
            continue
        protocol, peer, name = shown[index]
        cells = {
            (entry.step_title, entry.cell.rows): entry
            for entry in found
            if entry.cell.protocol == protocol and entry.peer == peer
        }
        _panel(axis, cells, steps, sizes, name, labels=index % columns == 0)
    figure.suptitle(f"{title}\n\n", fontsize=13, fontweight="bold")
    figure.text(0.5, 0.995, f"\n\n{subtitle}", ha="center", va="top", fontsize=9, color="#555555")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panel(
    axis: Axes,
    cells: dict[tuple[str, int], Entry],
    steps: list[str],
    sizes: list[int],
    name: str,
    *,
    labels: bool,
) -> None:
    grid = [[_strength(cells.get((step, size))) for size in sizes] for step in steps]
    norm = TwoSlopeNorm(vcenter=0, vmin=-LIMIT_LOG2, vmax=LIMIT_LOG2)
    colors = matplotlib.colormaps[COLORS].with_extremes(bad="#e4e4e4")
    axis.imshow(grid, cmap=colors, norm=norm, aspect="auto")
    axis.set_title(name, fontsize=10, pad=8)
    axis.set_xticks(range(len(sizes)), [f"{rows_label(size)} rows" for size in sizes], fontsize=9)
    axis.set_yticks(range(len(steps)), steps if labels else [""] * len(steps), fontsize=9)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xticks([x - 0.5 for x in range(1, len(sizes))], minor=True)
    axis.set_yticks([y - 0.5 for y in range(1, len(steps))], minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="minor", length=0)
    for y, step in enumerate(steps):
        for x, size in enumerate(sizes):
            strength = grid[y][x]
            dark = not math.isnan(strength) and abs(strength) > 1.6
            failed = math.isnan(strength) and (step, size) in cells
            axis.text(
                x,
                y,
                _text(cells.get((step, size))),
                ha="center",
                va="center",
                fontsize=9,
                color="#b3261e" if failed else "white" if dark else "#222222",
                fontweight="bold" if failed else "normal",
            )


def _strength(entry: Entry | None) -> float:
    if entry is None or entry.ratio is None:
        return math.nan
    return max(-LIMIT_LOG2, min(LIMIT_LOG2, math.log2(entry.ratio)))


def _text(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.ratio is None:
        return "failed"
    return f"{entry.ratio:.2f}x" if entry.ratio < 9.95 else f"{entry.ratio:.0f}x"
