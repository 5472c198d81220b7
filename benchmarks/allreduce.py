"""All-reduce as a TensorFlow op: ours against TensorFlow's own RING, in one run, in turn.

    python -m benchmarks.allreduce [--workers 2,3,4] [--bytes 4096,262144,4194304,67108864] [--csv out/allreduce.csv]

For each number of workers, real processes on this machine hold both; for each size they run a tf.function that loops over
the all-reduce (float32, mean), first one implementation, then the other, `--repeats` times after a warm-up. Printed are
the median and the spread of milliseconds for one all-reduce on worker 0, the ratio of the medians, and the bus bandwidth of
ours: 2(P−1)/P · bytes / time. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tf_strategies.launch.ports import ReservedPorts

_SECONDS_A_GROUP = 600
_COLUMNS = ("workers", "bytes", "algorithm", "transport", "ours_ms", "ours_min", "ours_max", "ring_ms", "ring_min",
            "ring_max", "ratio", "bus_gb_per_s")  # fmt: skip


def measure(
    workers: int, sizes: Sequence[int], repeats: int, options: Sequence[str]
) -> list[dict[str, object]]:
    """Runs one group of worker processes and returns a row for each size.

    Raises:
        RuntimeError: the group failed; its output is in the message.
    """
    with ReservedPorts(workers) as ring_ports, tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [
            sys.executable, "-m", "tf_strategies.launch.run", "--workers", str(workers), "-m",
            "benchmarks.allreduce_worker", "--ring-addresses", ",".join(ring_ports.addresses),
            "--bytes", ",".join(map(str, sizes)), "--repeats", str(repeats), "--results", str(results), *options,
        ]  # fmt: skip
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS_A_GROUP
        )
        if done.returncode:
            raise RuntimeError(
                f"{workers} workers ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return [_row(workers, measured) for measured in json.loads(results.read_text())]


def _row(workers: int, measured: dict) -> dict[str, object]:
    row: dict[str, object] = {"workers": workers, **{key: measured[key] for key in _COLUMNS[1:4]}}
    for name in ("ours", "ring"):
        times = [1e3 * seconds for seconds in measured[name]]
        row.update(
            {f"{name}_ms": statistics.median(times), f"{name}_min": min(times), f"{name}_max": max(times)}
        )
    row["ratio"] = row["ring_ms"] / row["ours_ms"]
    row["bus_gb_per_s"] = 2 * (workers - 1) / workers * measured["bytes"] / row["ours_ms"] / 1e6
    return row


def _print_row(row: dict) -> None:
    print(
        f"| {row['workers']} | {row['bytes']:>10,} | {row['algorithm']:<18} "
        f"| {row['ours_ms']:8.3f} ({row['ours_min']:.3f}–{row['ours_max']:.3f}) "
        f"| {row['ring_ms']:8.3f} ({row['ring_min']:.3f}–{row['ring_max']:.3f}) "
        f"| {row['ratio']:6.1f} | {row['bus_gb_per_s']:6.2f} |",
        flush=True,
    )


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=_integers, default=[2, 3, 4])
    parser.add_argument("--bytes", type=_integers, default=[4 << 10, 256 << 10, 4 << 20, 64 << 20])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--csv", type=Path, default=Path("out/allreduce.csv"))
    arguments = parser.parse_args()

    options = ["--algorithm", arguments.algorithm, "--transport", arguments.transport]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {' '.join(sys.argv)}\n"
    )
    print("| P | bytes | algorithm | ours, ms (min–max) | TF RING, ms (min–max) | RING / ours | bus GB/s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for workers in arguments.workers:
        for row in measure(workers, arguments.bytes, arguments.repeats, options):
            _print_row(row)
            rows.append(row)
    arguments.csv.parent.mkdir(parents=True, exist_ok=True)
    with arguments.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    print(f"\nTransport: {rows[-1]['transport']}. CSV: {arguments.csv}")


if __name__ == "__main__":
    main()
