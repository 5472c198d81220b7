"""One training step on a timeline: does communication hide behind backprop?

    python -m benchmarks.timeline [--model mlp] [--workers 2] [--steps 20] [--folder out/timeline]

Trains with `CollectiveAllReduceStrategy` and Keras `fit`, one thread a process, and profiles steps on worker 0 with TensorFlow's
profiler. Printed are, as medians over the steps: the time in which at least one collective is in flight, from submission to
completion; the share of it in which operations of the step run at the same time, and of backprop among them; and how long
before the end of backprop the first collective leaves. The last collective of a step sums the metrics.

Writes to the folder timeline.csv, a row a step, and of the step whose share is the median: step.csv, every span, and timeline.png
(needs matplotlib), computation in the first row, a collective in each row below.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Sequence

from benchmarks import ending
from benchmarks.spans import COMPUTING, Span, Step
from benchmarks.workers import run_workers
from tf_strategies.launcher.ports import ReservedPorts

BATCHES = {"mlp": 32, "resnet50": 8, "embedding": 256}
_SECONDS = 900
_COLORS = {"forward": "tab:blue", "backprop": "tab:orange", "update": "tab:green", "collective": "tab:red"}
_TITLES = {
    "step_ms": "step, ms",
    "communication_ms": "collectives in flight, ms",
    "hidden_ms": "… while operations run, ms",
    "hidden_share": "share hidden behind computation",
    "hidden_by_backprop_share": "share hidden behind backprop",
    "first_before_end_of_backprop_ms": "first collective before the end of backprop, ms",
}


def record(arguments: argparse.Namespace) -> list[Step]:
    """The steps that worker 0 profiled.

    Raises:
        RuntimeError: a worker failed; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as folder, ReservedPorts(arguments.workers) as ports:
        argv = [
            sys.executable, "-m", "benchmarks.timeline_worker", "--model", arguments.model,
            "--batch", str(arguments.batch or BATCHES[arguments.model]), "--image-size", str(arguments.image_size),
            "--steps", str(arguments.steps), "--bytes-per-pack", str(arguments.bytes_per_pack), "--results", folder,
        ]  # fmt: skip
        run_workers(argv, ports.addresses, Path(folder), seconds=_SECONDS)
        steps = json.loads(Path(folder, "steps.json").read_text())
    return [Step(Span(*span) for span in step) for step in steps]


def draw(step: Step, title: str, path: Path) -> None:
    """Computation in the first row, a collective in each row below, in the order of submission."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import patches, pyplot

    flights = [span for span in step.spans if span.kind == "collective"]
    figure, panel = pyplot.subplots(figsize=(12, 1.5 + 0.35 * (len(flights) + 1)))
    rows = [("computation", [span for span in step.spans if span.kind in COMPUTING])]
    rows += [(_short(flight.name), [flight]) for flight in flights]
    for number, (_, spans) in enumerate(rows):
        bars = [(1e3 * (span.begin - step.begin), 1e3 * (span.end - span.begin)) for span in spans]
        panel.broken_barh(bars, (number - 0.4, 0.8), facecolors=[_COLORS[span.kind] for span in spans])
    panel.axvline(1e3 * (step.backprop_end - step.begin), color="black", linestyle=":", linewidth=1)
    panel.set_yticks(range(len(rows)), [name for name, _ in rows])
    panel.invert_yaxis()
    panel.set_xlabel("ms since the step began (dotted: backprop is over)")
    panel.set_title(title)
    panel.legend(handles=[patches.Patch(color=color, label=kind) for kind, color in _COLORS.items()])
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _short(name: str) -> str:
    return name.replace("StatefulPartitionedCall/", "").replace("TfStrategies>", "")


def table(rows: Sequence[dict[str, float]]) -> str:
    """Markdown: the median of each figure, the least and the greatest."""
    lines = ["| of one step | median (min–max) |", "|---|---|"]
    for key, title in _TITLES.items():
        values = [row[key] for row in rows]
        form = "{:.0%}" if key.endswith("share") else "{:.1f}"
        middle, least, most = (form.format(x) for x in (statistics.median(values), min(values), max(values)))
        lines.append(f"| {title} | {middle} ({least}–{most}) |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=BATCHES, default="mlp")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, help=f"a worker; by default {BATCHES}")
    parser.add_argument("--image-size", type=int, default=224, help="of resnet50")
    parser.add_argument("--bytes-per-pack", type=int, default=8 << 20)
    parser.add_argument("--threads", type=int, default=1, help="inter-op, intra-op and OpenMP, a process")
    parser.add_argument("--folder", type=Path, default=Path("out/timeline"))
    arguments = parser.parse_args(argv)
    if arguments.workers < 2 or arguments.steps < 1:
        parser.error(
            f"got --workers {arguments.workers} --steps {arguments.steps}; it takes two workers and a step at least"
        )
    for option in ("batch", "bytes_per_pack", "image_size", "threads"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            parser.error(f"--{option.replace('_', '-')} is 1 at least; got {value}")
    ending.at_sigterm()
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ[name] = str(arguments.threads)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {' '.join(sys.argv)}\n"
    )
    steps = record(arguments)
    rows = [step.row() for step in steps]
    print(table(rows), flush=True)
    middle = sorted(steps, key=lambda step: step.hidden / step.communication)[(len(steps) - 1) // 2]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with (arguments.folder / "timeline.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(_TITLES))
        writer.writeheader()
        writer.writerows(rows)
    with (arguments.folder / "step.csv").open("w", newline="") as file:
        written = csv.writer(file)
        written.writerow(["kind", "name", "begin_ms", "end_ms"])
        for span in middle.spans:
            written.writerow(
                [span.kind, span.name, 1e3 * (span.begin - middle.begin), 1e3 * (span.end - middle.begin)]
            )
    title = (
        f"{arguments.model}, {arguments.workers} workers: {middle.hidden / middle.communication:.0%} of the communication hidden "
        f"behind computation, {middle.hidden_by_backprop / middle.communication:.0%} behind backprop"
    )
    draw(middle, title, arguments.folder / "timeline.png")
    print(f"\nWritten: {arguments.folder}/timeline.csv, step.csv, timeline.png")


if __name__ == "__main__":
    main()
