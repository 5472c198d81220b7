"""Measures what large batches do to learning, and which recipes help: accuracy, several batches and seeds, in one run.

    python -m benchmarks.large_batch [--tasks digits,fashion] [--recipes ...] [--seeds 1,2,3] [--folder large_batch]
        [--tune [--rates ...]]

Trains handwritten digits, or Fashion-MNIST (Debian's package dataset-fashion-mnist, or a folder named by --images), with two
workers and Keras 3's `fit`, at batches up to 32 times the smallest and equal epochs. The recipes are those of Goyal et al.
2017 (the rate unchanged; scaled; scaled after a constant or a gradual warm-up), LARS (You et al. 2017), LAMB (You et al. 2020),
and SGD with Nesterov's momentum whose rate is tuned for each batch, which Nado et al. 2021 found to be enough. All have the same
momentum, weight decay and quadratic decay of the rate. Prints a table, and writes large_batch.csv and large_batch.png to the
folder. --tune tries several rates for the recipes that have rates of their own, with seed 0, and prints the best. Without
--batches, recipes with rates of their own train at the batches for which one is known.

Needs matplotlib. The digits take a quarter of an hour on two cores, Fashion-MNIST one to two hours: 30 to 90 seconds for each
training. Started again with the same folder, it goes on with what is missing. The table and the plot have all that the folder
has for these seeds, also of other recipes and batches.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.large_batch_rates import BEST_RATES, TRIED_RATES
from benchmarks.trainings import train_missing

BATCHES = {"digits": (16, 64, 256, 512), "fashion": (64, 512, 2048)}
RECIPES = [
    "no_scaling", "no_warmup", "constant_warmup", "gradual_warmup", "lars", "lamb", "tuned_nesterov",
]  # fmt: skip
IMAGES = Path("/usr/share/datasets/fashion-mnist")
WORKERS = 2


def measure(task: str, names: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The results of large_batch_worker for these trainings."""
    options = ["--task", task, "--images", str(arguments.images), "--epochs", str(arguments.epochs)]
    return train_missing(
        "benchmarks.large_batch_worker", options, names, WORKERS, arguments.folder / f"{task}.jsonl"
    )


def measured(task: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All results of the folder that have one of the seeds, recipe by recipe, without those of --tune."""
    lines = (arguments.folder / f"{task}.jsonl").read_text().splitlines()
    results = [each for each in map(json.loads, lines) if each["seed"] in arguments.seeds]
    results = [each for each in results if each["training"].count("/") == 2]  # without a rate
    return sorted(results, key=lambda each: (RECIPES.index(each["recipe"]), each["batch"], each["seed"]))


def table(task: str, results: list[dict[str, Any]]) -> str:
    """Markdown: a row for each recipe, a column for each batch."""
    batches = sorted({result["batch"] for result in results})
    lines = [
        f"| {task}: recipe | " + " | ".join(f"batch {batch}" for batch in batches) + " |",
        "|---" * (len(batches) + 1) + "|",
    ]
    for recipe in dict.fromkeys(result["recipe"] for result in results):
        found = (summary(results, recipe, batch) for batch in batches)
        cells = ["–" if each is None else "{:.1%} ({:.1%}–{:.1%})".format(*each) for each in found]
        lines.append(f"| {recipe.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(results: list[dict[str, Any]], recipe: str, batch: int) -> tuple[float, float, float] | None:
    """Mean, least and greatest accuracy over the seeds; None if the recipe has not run with this batch."""
    found = [
        result["accuracy"] for result in results if (result["recipe"], result["batch"]) == (recipe, batch)
    ]
    return (statistics.mean(found), min(found), max(found)) if found else None


def best_rates(results: list[dict[str, Any]]) -> list[str]:
    """For each recipe and batch the accuracy of each rate that was tried, the best first."""
    lines = []
    for recipe, batch in dict.fromkeys((result["recipe"], result["batch"]) for result in results):
        tried = [result for result in results if (result["recipe"], result["batch"]) == (recipe, batch)]
        tried.sort(key=lambda result: -result["accuracy"])
        shown = ", ".join(f"{result['rate']:g}: {result['accuracy']:.1%}" for result in tried)
        lines.append(f"{recipe}, batch {batch}: {shown}")
    return lines


def plot(by_task: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """A panel for each task: accuracy against the batch, a line for each recipe, bars from the least to the greatest seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(by_task), figsize=(7 * len(by_task), 5), squeeze=False)
    for panel, (task, results) in zip(panels[0], by_task.items()):
        best = max(result["accuracy"] for result in results)
        for recipe in dict.fromkeys(result["recipe"] for result in results):
            batches = sorted({result["batch"] for result in results if result["recipe"] == recipe})
            means, least, greatest = zip(*(summary(results, recipe, batch) for batch in batches))
            below = [mean - each for mean, each in zip(means, least)]
            above = [each - mean for mean, each in zip(means, greatest)]
            panel.errorbar(
                batches, means, yerr=[below, above], marker="o", capsize=3, label=recipe.replace("_", " ")
            )
        panel.set_xscale("log", base=2)
        panel.set_ylim(best - 0.12, best + 0.01)  # what has diverged lies below
        panel.set_xlabel("rows of a batch")
        panel.set_ylabel("test accuracy")
        panel.set_title(task)
        panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=["digits"])
    parser.add_argument("--recipes", type=lambda text: text.split(","), default=RECIPES)
    parser.add_argument("--batches", type=lambda text: list(map(int, text.split(","))), default=None)
    parser.add_argument("--seeds", type=lambda text: list(map(int, text.split(","))), default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=0, help="0: as many as each task has")
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder of Fashion-MNIST's four .gz")
    parser.add_argument("--folder", type=Path, default=Path("large_batch"))
    parser.add_argument("--tune", action="store_true", help="try several rates with seed 0")
    parser.add_argument(
        "--rates",
        type=lambda text: list(map(float, text.split(","))),
        default=None,
        help="those that --tune tries",
    )
    arguments = parser.parse_args()
    if arguments.rates and not arguments.tune:
        parser.error("--rates are those that --tune tries")
    if "fashion" in arguments.tasks and not arguments.images.is_dir():
        parser.error(
            f"{arguments.images} is missing: install Debian's package dataset-fashion-mnist, or name the folder by --images, or "
            "leave the task out by --tasks digits"
        )
    if not arguments.tune and importlib.util.find_spec("matplotlib") is None:
        parser.error("the plot needs matplotlib: pip install matplotlib")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    by_task = {}
    for task in arguments.tasks:
        cases = [
            f"{recipe}/{batch}"
            for recipe in arguments.recipes
            for batch in arguments.batches or BATCHES[task]
        ]
        unknown = [
            case
            for case in cases
            if (recipe := case.partition("/")[0]) in TRIED_RATES
            and int(case.partition("/")[2]) not in BEST_RATES.get((task, recipe), {})
        ]
        if arguments.batches is None and not arguments.tune:
            cases = [case for case in cases if case not in unknown]
        elif unknown and not arguments.tune:
            parser.error(
                f"no rate is known for {task} by {', '.join(unknown)}: find the best with --tune, and add them to "
                "benchmarks/large_batch_rates.py"
            )
        if arguments.tune:
            names = [
                f"0/{case}/{rate}"
                for case in cases
                if (recipe := case.partition("/")[0]) in TRIED_RATES
                for rate in arguments.rates or TRIED_RATES[recipe]
            ]
            print("\n".join([f"{task}:", *best_rates(measure(task, names, arguments))]), flush=True)
            continue
        names = [f"{seed}/{case}" for seed in arguments.seeds for case in cases]
        measure(task, names, arguments)
        by_task[task] = measured(task, arguments)
        print(table(task, by_task[task]), end="\n\n", flush=True)
    if arguments.tune:
        return
    with (arguments.folder / "large_batch.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["task", "recipe", "batch", "seed", "rate", "accuracy"], extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows({"task": task, **result} for task, results in by_task.items() for result in results)
    plot(by_task, arguments.folder / "large_batch.png")


if __name__ == "__main__":
    main()
