"""Top-k gradient selection against `tf.math.top_k` (and `torch.topk` where PyTorch is installed), in one run, in turn.

    python -m benchmarks.topk [--counts 1000000,25000000,100000000] [--ratios 0.001,0.01] [--repeats 7] [--csv out/topk.csv]

One process. Ours adds the gradient to a residual, selects, and leaves the residual; the peers only select from |gradient|. The
limit is `residual += gradient`: the bytes that error feedback must move in any case, by Eigen on the same threads. Printed
are medians and spreads of milliseconds, and ratios of medians. Takes about a minute.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List

import tensorflow as tf

from tf_strategies.native.top_k import top_k

_COLUMNS = ("n", "k", "way", "median_ms", "min_ms", "max_ms", "over_limit", "over_tf")


def ways(count: int, k: int) -> Dict[str, Callable[[], object]]:
    """What is timed, by name; each call ends when the result is there."""
    gradient = tf.random.normal([count], seed=1)
    residual = tf.Variable(tf.zeros([count]))
    k_tensor = tf.constant(k, tf.int64)

    # An operation that may write where it reads: the residual is handed over, not copied.
    state = {"residual": tf.zeros([count])}

    def ours(sampled: bool) -> None:
        selected = top_k(gradient, state.pop("residual"), k_tensor, sampled=sampled)
        state["residual"] = selected.remaining
        selected.values.numpy()

    found = {
        "limit": lambda: residual.assign_add(gradient, read_value=False) or residual[0].numpy(),
        "exact": lambda: ours(False),
        "sampled": lambda: ours(True),
        "tf.math.top_k": lambda: tf.math.top_k(tf.abs(gradient), k, sorted=False).values.numpy(),
    }
    if importlib.util.find_spec("torch"):
        import torch

        tensor = torch.from_numpy(gradient.numpy())
        found["torch.topk"] = lambda: torch.topk(tensor.abs(), k, sorted=False)
    return found


def measure(count: int, k: int, repeats: int) -> List[dict]:
    times: Dict[str, List[float]] = {}
    timed = ways(count, k)
    for repeat in range(-1, repeats):
        for name, run in timed.items():
            start = time.perf_counter()
            run()
            if repeat >= 0:
                times.setdefault(name, []).append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(each) for name, each in times.items()}
    return [
        {
            "n": count, "k": k, "way": name, "median_ms": medians[name], "min_ms": min(each), "max_ms": max(each),
            "over_limit": medians[name] / medians["limit"], "over_tf": medians["tf.math.top_k"] / medians[name],
        }
        for name, each in times.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--counts",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[10**6, 25 * 10**6, 10**8],
    )
    parser.add_argument(
        "--ratios", type=lambda text: [float(part) for part in text.split(",")], default=[0.001, 0.01]
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--csv", type=Path, default=Path("out/topk.csv"))
    arguments = parser.parse_args()

    print(f"{os.cpu_count()} cores, TensorFlow {tf.__version__}, {' '.join(sys.argv)}\n")
    print("| n | k | way | ms (min–max) | over the limit | faster than tf.math.top_k |")
    print("|---|---|---|---|---|---|", flush=True)
    rows = []
    for count in arguments.counts:
        for ratio in arguments.ratios:
            for row in measure(count, max(1, int(count * ratio)), arguments.repeats):
                rows.append(row)
                print(
                    f"| {row['n']:,} | {row['k']:,} | {row['way']} "
                    f"| {row['median_ms']:.2f} ({row['min_ms']:.2f}–{row['max_ms']:.2f}) "
                    f"| {row['over_limit']:.2f} | {row['over_tf']:.1f} |",
                    flush=True,
                )
    arguments.csv.parent.mkdir(parents=True, exist_ok=True)
    with arguments.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    print(f"\nCSV: {arguments.csv}")


if __name__ == "__main__":
    main()
