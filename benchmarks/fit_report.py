"""Shows the results of benchmarks.fit as a table, verdicts on its targets, and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

__all__ = ["plot", "table_row", "verdicts"]

# The targets: how many times as fast as a peer, and which share of the ideal.
_WANTED_OVER_PEER = {
    ("mlp", 2, "mwms"): 3,
    ("mlp", 4, "mwms"): 3,
    ("mlp", 2, "horovod"): 2,
    ("mlp", 4, "horovod"): 2,
}
_WANTED_OF_IDEAL = {("resnet50", 2): 0.9}


def table_row(row: dict) -> str:
    """Returns the row as a line of the Markdown table."""
    if row["left_out"]:
        return (
            f"| {row['model']} | {row['workers']} | {row['system']} | left out: {row['left_out']} | | | | |"
        )
    spread = f"{row['step_ms']:.1f} ({row['step_min']:.1f}–{row['step_max']:.1f})"
    over_ours = f"{row['over_ours']:.2f}" if row["over_ours"] else ""
    ideal, alone = (
        f"{row[share]:.0%}" if row[share] else "" for share in ("share_of_ideal", "share_of_alone")
    )
    memory = f"{row['peak_bytes'] / 1e6:.0f}"
    if row["extra_bytes"] != "":
        memory += f", {row['extra_bytes'] / 1e6:+.0f}"
    return f"| {row['model']} | {row['workers']} | {row['system']} | {spread} | {over_ours} | {ideal} | {alone} | {memory} |"


def verdicts(rows: Sequence[dict]) -> list[str]:
    """Returns a line for each target that says if it was reached."""
    lines = []
    for row in rows:
        place = f"{row['model']}, P={row['workers']}"
        wanted = _WANTED_OVER_PEER.get((row["model"], row["workers"], row["system"]))
        if wanted and row["over_ours"]:
            met = _met(row["over_ours"] >= wanted)
            lines.append(
                f"- {place}: {row['system']} / ours = {row['over_ours']:.2f}, wanted ≥ {wanted}: {met}"
            )
        wanted = _WANTED_OF_IDEAL.get((row["model"], row["workers"]))
        if wanted and row["system"] == "ours" and row["share_of_ideal"]:
            met = _met(row["share_of_ideal"] >= wanted)
            lines.append(
                f"- {place}: ours at {row['share_of_ideal']:.0%} of {row['workers']} processes side by side without "
                f"communication, wanted ≥ {wanted:.0%}: {met}"
            )
        if row["largest_pack"] and row["extra_bytes"] != "":
            met = _met(row["extra_bytes"] <= row["largest_pack"])
            lines.append(
                f"- {place}: ours needs {row['extra_bytes'] / 1e6:.1f} MB beyond side by side, wanted ≤ the largest pack, "
                f"{row['largest_pack'] / 1e6:.1f} MB: {met}"
            )
    return lines


def _met(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


def plot(rows: Sequence[dict], path: Path) -> None:
    """Draws a panel for each model, with a group of bars for each number of workers and a bar for each system."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    models = list(dict.fromkeys(row["model"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure, panels = pyplot.subplots(1, len(models), figsize=(5 * len(models), 4), squeeze=False)
    for panel, model in zip(panels[0], models):
        counts = list(dict.fromkeys(row["workers"] for row in rows if row["model"] == model))
        for number, system in enumerate(systems):
            mine = [
                row
                for row in rows
                if (row["model"], row["system"]) == (model, system) and not row["left_out"]
            ]
            places = [
                counts.index(row["workers"]) + (number - (len(systems) - 1) / 2) * 0.8 / len(systems)
                for row in mine
            ]
            heights = [row["step_ms"] for row in mine]
            bars = [
                [row["step_ms"] - row["step_min"] for row in mine],
                [row["step_max"] - row["step_ms"] for row in mine],
            ]
            panel.bar(
                places, heights, 0.8 / len(systems), yerr=bars, capsize=2, label=system.replace("_", " ")
            )
        panel.set_xticks(range(len(counts)), [f"P = {count}" for count in counts])
        panel.set_title(model)
        panel.set_ylabel("ms a step")
        panel.set_ylim(bottom=0)
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
