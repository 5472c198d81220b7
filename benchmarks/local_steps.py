"""Measures what local steps save on slow links: steps a second and bytes, in turn, several rounds.

    python -m benchmarks.local_steps [--workers 4] [--rate 100mbit] [--sync-every 100] [--averages 2] [--rounds 3]

The model is an MLP of 15.0 million weights. The hosts are network namespaces of this machine, one for each worker, which may
send so many bits per second. "no network" are local steps without an average. "overlap" lets each fragment take as many steps as
possible. Printed are milliseconds of a step of the slowest worker (median of the rounds, least and greatest), the share of the
step rate without a network, the bytes that a worker sends in a step, and the seconds of the longest step.

Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ending
from benchmarks.between_hosts import bits_per_second
from benchmarks.hosts import Hosts
from benchmarks.workers import run_workers

_SECONDS = 3600
_PORT = 22199


def measure(arguments: argparse.Namespace) -> dict[str, list[tuple[float, float, float]]]:
    """Returns for each system, and each round, the seconds and the bytes of a step of the slowest worker, and its longest step.

    Raises:
        RuntimeError: a worker failed; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as folder, Hosts(arguments.workers, arguments.rate) as hosts:
        argv = [
            sys.executable, "-m", "benchmarks.local_steps_worker", "--results", folder,
            "--sync-every", str(arguments.sync_every), "--averages", str(arguments.averages),
            "--rounds", str(arguments.rounds),
        ]  # fmt: skip
        addresses = [f"{address}:{_PORT}" for address in hosts.addresses]
        prefixes = [hosts.command(host, []) for host in range(arguments.workers)]
        run_workers(argv, addresses, Path(folder), seconds=_SECONDS, prefixes=prefixes)
        of_workers = [json.loads(path.read_text()) for path in Path(folder).glob("steps-*.json")]
    return {
        system: [max(of_round) for of_round in zip(*(each[system] for each in of_workers))]
        for system in of_workers[0]
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--sync-every", type=int, default=100)
    parser.add_argument("--averages", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(argv)
    try:
        bits_per_second(arguments.rate)
    except ValueError as error:
        parser.error(str(error))
    if min(arguments.workers - 1, arguments.sync_every - 3, arguments.averages, arguments.rounds) < 1:
        parser.error(
            "--workers is 2 at least; --sync-every is 4 at least; --averages and --rounds are 1 at least"
        )
    ending.at_sigterm()
    found = measure(arguments)
    print(f"{arguments.workers} workers, {arguments.rate}, an average after {arguments.sync_every} steps\n")
    print(
        "| system | step, ms (least–greatest) | of the step rate without a network | bytes sent a step | longest step, s |"
    )
    print("|---|---|---|---|---|")
    alone = [seconds for seconds, _, _ in found["no network"]]
    for system, steps in found.items():
        times = [1e3 * seconds for seconds, _, _ in steps]
        share = statistics.median(free / seconds for free, (seconds, _, _) in zip(alone, steps))
        sent = statistics.median(each for _, each, _ in steps)
        longest = statistics.median(each for _, _, each in steps)
        spread = f"{statistics.median(times):.4g} ({min(times):.4g}–{max(times):.4g})"
        print(f"| {system} | {spread} | {100 * share:.3g} % | {sent:,.0f} | {longest:.2g} |")


if __name__ == "__main__":
    main()
