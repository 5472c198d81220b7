"""IndexedSlices over workers: gathered row by row against dense tables, in one run, in turn.

    python -m benchmarks.sparse [--workers 2,3,4] [--rows 64,1000,10000,100000] [--widths 16,128] [--densities 0.02,0.1,0.5,1]

Every worker has `density · rows` distinct rows of a table [rows, width] float32, chosen by itself. "rows" agrees on the numbers
of rows and gathers; "dense" agrees and all-reduces the table; "packed" all-reduces without asking, as small tables do. Printed
are medians in ms for one table on worker 0, after one warm-up, and the bytes of all rows over those of the dense table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SECONDS_A_GROUP = 900
_LARGEST_TABLE_BYTES = 16 << 20


def measure(workers: int, cases: Sequence[tuple], repeats: int, transport: str) -> list[dict]:
    """Runs one group of worker processes and returns a row for each case.

    Raises:
        RuntimeError: the group failed; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [
            sys.executable, "-m", "tf_strategies.launcher.run", "--workers", str(workers), "-m",
            "benchmarks.sparse_worker", "--cases", json.dumps(cases), "--repeats", str(repeats),
            "--results", str(results), "--transport", transport,
        ]  # fmt: skip
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS_A_GROUP
        )
        if done.returncode:
            raise RuntimeError(
                f"{workers} workers ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return json.loads(results.read_text())


def _print_row(workers: int, row: dict) -> None:
    ways = {name: 1e3 * statistics.median(times) for name, times in row["times"].items()}
    print(
        f"| {workers} | {row['rows']:>7,} × {row['width']:<3} | {row['density']:>5} | {row['bytes_ratio']:5.2f} "
        f"| {ways['rows']:8.3f} | {ways['dense']:8.3f} | {ways['packed']:8.3f} "
        f"| {ways['dense'] / ways['rows']:5.2f} | {ways['packed'] / ways['rows']:5.2f} |",
        flush=True,
    )


def _numbers(kind: type):
    return lambda text: [kind(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=_numbers(int), default=[2, 3, 4])
    parser.add_argument("--rows", type=_numbers(int), default=[64, 1000, 10_000, 100_000])
    parser.add_argument("--widths", type=_numbers(int), default=[16, 128])
    parser.add_argument("--densities", type=_numbers(float), default=[0.02, 0.1, 0.5, 1.0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--transport", default="auto")
    arguments = parser.parse_args()

    cases = [
        (rows, width, density)
        for rows in arguments.rows
        for width in arguments.widths
        for density in arguments.densities
        if rows * width * 4 <= _LARGEST_TABLE_BYTES
    ]
    print(
        "| P | table | density | bytes of rows / table | rows, ms | dense, ms | packed, ms | dense / rows | packed / rows |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for workers in arguments.workers:
        for row in measure(workers, cases, arguments.repeats, arguments.transport):
            _print_row(workers, row)


if __name__ == "__main__":
    main()
