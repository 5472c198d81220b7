"""Measures weights that servers cast to half precision, against weights that workers cast: steps per second, in one run, in turn.

    python -m benchmarks.half_weights [--strategy async] [--policy mixed_bfloat16] [--rate 1gbit] [--rounds 6] [--steps 5]

Two workers and a server train an MLP of 15 million parameters, batch 32 a worker, plain SGD. In each round they make some steps
with weights that the server casts, as the strategies do, and as many with weights that travel as float32 and are cast by the
worker. Printed are the medians over rounds of the steps per second of both workers, with the least and the greatest, and of the
processor time of all processes for a step. With `--rate` each process is on a host of its own, whose link sends no faster; this
needs root and iproute2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.parameter_server import processes

_WORKERS = 2
_SECONDS = 900


def measure(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Returns what was measured in each round, for "worker" and for "server", which cast the weights.

    Raises:
        RuntimeError: a worker failed; its output is in the message.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        processes({"worker": _WORKERS, "ps": 1}, folder, arguments.rate) as start,
    ):
        command = [
            sys.executable, "-m", "benchmarks.half_weights_worker", "--strategy", arguments.strategy,
            "--policy", arguments.policy, "--rounds", str(arguments.rounds), "--steps", str(arguments.steps),
            "--folder", folder,
        ]  # fmt: skip
        running = start(command)
        Path(folder, "pids.part").write_text(json.dumps([process.pid for process in running.values()]))
        Path(folder, "pids.part").rename(Path(folder, "pids"))
        for index in range(_WORKERS):
            status = running["worker", index].wait(timeout=_SECONDS)
            if status:
                log = Path(folder, f"worker{index}.log").read_text()
                raise RuntimeError(f"worker {index} ended with {status}:\n{log[-4000:]}")
        return json.loads(Path(folder, "results.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", choices=["async", "sync"], default="async")
    parser.add_argument("--policy", default="mixed_bfloat16")
    parser.add_argument("--rate", default="", help="of the link of each process, such as 1gbit")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5, help="of each worker in a round")
    arguments = parser.parse_args()
    print("| cast by | steps/s (least, greatest) | processor ms a step |\n|---|---|---|", flush=True)
    for caster, rounds in measure(arguments).items():
        rates = [each["rate"] for each in rounds]
        spent = statistics.median(each["processor"] for each in rounds)
        spread = f"{statistics.median(rates):.2f} ({min(rates):.2f}, {max(rates):.2f})"
        print(f"| {caster} | {spread} | {1e3 * spent:.0f} |", flush=True)


if __name__ == "__main__":
    main()
