"""Plots the results of benchmarks.allreduce: milliseconds against bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from benchmarks.allreduce_contestants import ALGORITHMS, CONTESTANTS

__all__ = ["plot"]

_FIXED_ALGORITHMS = tuple(f"core_{name}" for name in ALGORITHMS)
_NOT_DRAWN = ("copy", "core_again")


def plot(rows: Sequence[dict], wire: str, path: Path) -> None:
    """Draws a log-log panel for each number of workers. A band shows the spread, except for fixed algorithms.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    mine = [row for row in rows if row["wire"] == wire]
    workers = sorted({row["workers"] for row in mine})
    across = min(2, len(workers))
    down = -(-len(workers) // across)
    figure, panels = pyplot.subplots(
        down, across, figsize=(7 * across, 5 * down), layout="constrained", squeeze=False
    )
    drawn = [name for name in CONTESTANTS if name not in _NOT_DRAWN]
    colors = dict(zip(drawn, pyplot.get_cmap("tab20").colors))
    for panel, count in zip(panels.flat, workers):
        here = sorted((row for row in mine if row["workers"] == count), key=lambda row: row["bytes"])
        for name in drawn:
            line = [row for row in here if row["contestant"] == name]
            if line:
                _draw(panel, line, CONTESTANTS[name].title, colors[name], fixed=name in _FIXED_ALGORITHMS)
        least = min(row["min_ms"] for row in here)
        limits = {row["bytes"]: row["limit_ms"] for row in here if row["limit_ms"] is not None}
        if limits:
            panel.loglog(*zip(*limits.items()), color="black", linestyle=":", label="limit")
        panel.set(title=f"P = {count}", xlabel="bytes", ylabel="milliseconds")
        panel.set_ylim(bottom=least / 2)
        panel.grid(True, which="major", alpha=0.3)
    for panel in panels.flat[len(workers) :]:
        panel.set_visible(False)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    figure.suptitle(f"all-reduce, {wire}")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _draw(panel, line: Sequence[dict], label: str, color: object, *, fixed: bool) -> None:
    sizes = [row["bytes"] for row in line]
    look = {"linestyle": "--", "linewidth": 0.8} if fixed else {"marker": "."}
    panel.loglog(sizes, [row["median_ms"] for row in line], label=label, color=color, **look)
    if not fixed:
        least, greatest = [row["min_ms"] for row in line], [row["max_ms"] for row in line]
        panel.fill_between(sizes, least, greatest, color=color, alpha=0.15)
