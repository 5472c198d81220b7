"""Measures what fewer bytes do to learning: accuracy and perplexity, four workers, several seeds, in one run.

    python -m benchmarks.learning [--tasks digits,language] [--systems ...] [--seeds 1,2,3] [--epochs N] [--folder learning]

Trains handwritten digits (a convolutional network) and Python's manual (an LSTM that foretells letters) with Keras `fit`, SGD
with momentum, once with each system (a compressor, or local steps) and seed. Prints a table, and writes learning.csv and
learning.png to the folder. The bytes are those that one worker sends in a step, on average over a training, warm-up included.
Needs matplotlib. Takes two hours on two cores; started again with the same folder, it goes on with what is missing.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from pathlib import Path

from benchmarks.trainings import train_missing

SYSTEMS = [
    "dense", "half", "quantize8", "quantize4", "ternary", "sign", "power_sgd_2", "power_sgd_8",
    "random_k_1%", "top_k_1%", "top_k_0.1%", "top_k_0.1%_no_feedback", "dgc_0.1%",
    "local_sgd_8", "diloco_50", "diloco_50_4_bits",
]  # fmt: skip
SCORES = {"digits": "test accuracy", "language": "perplexity of a letter"}


def measure(
    task: str, systems: list[str], seeds: list[int], workers: int, epochs: int, folder: Path
) -> list[dict]:
    """The results of learning_worker, a dict for each seed and system."""
    names = [f"{seed}/{system}" for seed in seeds for system in systems]
    options = ["--task", task, "--epochs", str(epochs)]
    return train_missing("benchmarks.learning_worker", options, names, workers, folder / f"{task}.jsonl")


def summary(results: list[dict], system: str) -> tuple[float, float, float, float]:
    """Mean, least and greatest score of a system over its seeds, and its bytes a step."""
    mine = [result for result in results if result["system"] == system]
    scores = [result["score"] for result in mine]
    return (
        statistics.mean(scores),
        min(scores),
        max(scores),
        statistics.mean(result["bytes_a_step"] for result in mine),
    )


def table(task: str, results: list[dict], systems: list[str]) -> str:
    """Markdown."""
    lines = [
        f"| {task}: system | {SCORES[task]}, mean (least, greatest) | bytes sent a step |",
        "|---|---|---|",
    ]
    for system in systems:
        mean, least, greatest, sent = summary(results, system)
        lines.append(f"| {system} | {mean:.4g} ({least:.4g}, {greatest:.4g}) | {sent:,.0f} |")
    return "\n".join(lines)


def plot(by_task: dict[str, list[dict]], systems: list[str], path: Path) -> None:
    """A panel a task: score against bytes, a bar from the least to the greatest seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(by_task), figsize=(7 * len(by_task), 5), squeeze=False)
    for panel, (task, results) in zip(panels[0], by_task.items()):
        for system in systems:
            mean, least, greatest, sent = summary(results, system)
            bar = [[mean - least], [greatest - mean]]
            panel.errorbar([sent], [mean], yerr=bar, fmt="o", capsize=3, label=system)
        panel.set_xscale("log")
        panel.set_xlabel("bytes that a worker sends in a step")
        panel.set_ylabel(SCORES[task])
        panel.set_title(task)
        panel.grid(alpha=0.3)
    panels[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(SCORES))
    parser.add_argument("--systems", type=lambda text: text.split(","), default=SYSTEMS)
    parser.add_argument(
        "--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 3]
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=0, help="0: as many as each task has")
    parser.add_argument("--folder", type=Path, default=Path("learning"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    by_task = {}
    for task in arguments.tasks:
        by_task[task] = measure(
            task, arguments.systems, arguments.seeds, arguments.workers, arguments.epochs, arguments.folder
        )
        print(table(task, by_task[task], arguments.systems), end="\n\n", flush=True)
    with (arguments.folder / "learning.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["task", "system", "seed", "score", "bytes_a_step", "weights"], extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows({"task": task, **result} for task, results in by_task.items() for result in results)
    plot(by_task, arguments.systems, arguments.folder / "learning.png")


if __name__ == "__main__":
    main()
