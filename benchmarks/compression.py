"""Compressed gradients on slow links, against TensorFlow's MultiWorkerMirroredStrategy, in one run, in turn.

    python -m benchmarks.compression [--hosts 3] [--rates 1gbit,100mbit,none] [--systems ...] [--rounds 1]

Keras `fit` of an MLP of 15 million parameters, batch 32 a worker, one worker a host. The hosts are network namespaces of this
machine, each of which may send so many bits per second; with rate "none" the workers share one host, and ours its memory. Printed
are steps per second, of whole epochs but the first, and the ratio to the first system that ran. Needs root and iproute2, and
for "mwms" a TensorFlow whose `tf.keras` is Keras 2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Sequence

from benchmarks import ending
from benchmarks.hosts import Hosts
from benchmarks.workers import run_workers
from tf_strategies.launcher.ports import ReservedPorts

_SECONDS_A_RUN = 900
_PORT = 22099
_NOT_OURS = (
    "mwms"  # at 100 Mbit/s it has been seen to fail: its heartbeats do not get through beside the weights
)


def measure(system: str, rate: str, hosts: int, steps: int) -> float:
    """Steps per second.

    Raises:
        RuntimeError: a worker failed; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as folder, _places(hosts, rate) as (addresses, prefixes):
        argv = [
            sys.executable, "-m", "benchmarks.compression_worker", "--system", system, "--steps", str(steps),
            "--results", folder,
        ]  # fmt: skip
        run_workers(argv, addresses, Path(folder), seconds=_SECONDS_A_RUN, prefixes=prefixes)
        ends = json.loads(Path(folder, "worker0.json").read_text())
    return steps * (len(ends) - 1) / (ends[-1] - ends[0])


@contextlib.contextmanager
def _places(hosts: int, rate: str) -> Iterator[tuple[Sequence[str], Sequence[list[str]]]]:
    """The addresses of the workers, and what each one's command line begins with."""
    if rate == "none":
        with ReservedPorts(hosts) as ports:
            yield ports.addresses, [[] for _ in range(hosts)]
        return
    with Hosts(hosts, rate) as made:
        yield [f"{each}:{_PORT}" for each in made.addresses], [made.command(i, []) for i in range(hosts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--rates", type=lambda text: text.split(","), default=["1gbit", "100mbit", "none"])
    parser.add_argument(
        "--systems",
        type=lambda text: text.split(","),
        default=["mwms", "dense", "half", "quantize8", "top_k", "dgc"],
        help="the first is what the others are compared to",
    )
    parser.add_argument("--steps", type=int, default=5, help="of an epoch; three epochs are trained")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    ending.at_sigterm()
    print("| rate | system | steps/s (least, greatest) | ratio |\n|---|---|---|---|", flush=True)
    for rate in arguments.rates:
        found: dict[str, list[float]] = {system: [] for system in arguments.systems}
        for _ in range(arguments.rounds):
            for system in arguments.systems:
                try:
                    found[system].append(measure(system, rate, arguments.hosts, arguments.steps))
                except RuntimeError as error:
                    if system != _NOT_OURS:
                        raise
                    print(error, file=sys.stderr)
        base = statistics.median(next((rates for rates in found.values() if rates), [math.nan]))
        for system, rates in found.items():
            if not rates:
                print(f"| {rate} | {system} | failed | |", flush=True)
                continue
            middle = statistics.median(rates)
            spread = f"{middle:.3g} ({min(rates):.3g}, {max(rates):.3g})"
            print(f"| {rate} | {system} | {spread} | {middle / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
