"""All-reduce between hosts with several workers each: every algorithm over links as slow as wanted, in one run, in turn.

    python -m benchmarks.between_hosts [--hosts 2] [--workers-per-host 2] [--rate 1gbit] [--bytes 65536,1048576,16777216]

The hosts are network namespaces of this machine, each of which may send so many bits per second; workers of one share its memory.
Printed are milliseconds of one all-reduce as a TensorFlow operation (float32, median of the rounds, least and greatest; a round
has 5 calls, or as many as make 16 MB), and the limit: a host with H−1 others must send 2(H−1)/H times the bytes. Needs root and
iproute2.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ending
from benchmarks.hosts import Hosts
from benchmarks.workers import run_workers
from tf_strategies.options import ALGORITHMS

_SECONDS = 900
_PORT = 22099
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(rate: str) -> float:
    """Of a rate as `tc` writes it.

    Raises:
        ValueError: it is not a number above 0 with kbit, mbit or gbit.
    """
    found = re.fullmatch(r"(\d+\.?\d*)(kbit|mbit|gbit)", rate)
    if found is None or float(found[1]) == 0:
        raise ValueError(f"a rate is a number above 0 with {', '.join(_UNITS)}; got {rate!r}")
    return float(found[1]) * _UNITS[found[2]]


def check(arguments: argparse.Namespace) -> None:
    """Refuses what cannot be measured, and completes the rest.

    Raises:
        ValueError: saying what is accepted.
    """
    bits_per_second(arguments.rate)
    if arguments.hosts < 2 or arguments.workers < 1 or arguments.rounds < 1:
        raise ValueError("--hosts is 2 at least, --workers-per-host and --rounds are 1 at least")
    if any(not size.isdecimal() or int(size) < 4 or int(size) % 4 for size in arguments.bytes.split(",")):
        raise ValueError(f"--bytes are multiples of 4; got {arguments.bytes}")
    possible = [name for name in ALGORITHMS if name != "hierarchical" or arguments.workers > 1]
    arguments.algorithms = arguments.algorithms or ",".join(possible)
    if not set(arguments.algorithms.split(",")) <= set(possible):
        raise ValueError(f"--algorithms are of {', '.join(possible)}; got {arguments.algorithms}")


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Seconds of a call by size and algorithm, one a round.

    Raises:
        RuntimeError: a worker failed; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as folder, Hosts(arguments.hosts, arguments.rate) as hosts:
        argv = [
            sys.executable, "-m", "benchmarks.between_hosts_worker", "--algorithms", arguments.algorithms,
            "--bytes", arguments.bytes, "--rounds", str(arguments.rounds), "--results", folder,
        ]  # fmt: skip
        places = [(host, local) for host in range(arguments.hosts) for local in range(arguments.workers)]
        addresses = [f"{hosts.addresses[host]}:{_PORT + local}" for host, local in places]
        prefixes = [hosts.command(host, []) for host, _ in places]
        run_workers(argv, addresses, Path(folder), seconds=_SECONDS, prefixes=prefixes)
        return json.loads(Path(folder, "seconds.json").read_text())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--workers-per-host", dest="workers", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--bytes", default="65536,1048576,16777216")
    parser.add_argument("--algorithms", help="by default all that are possible")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args(argv)
    try:
        check(arguments)
    except ValueError as error:
        parser.error(str(error))
    ending.at_sigterm()
    limit = 2 * (arguments.hosts - 1) / arguments.hosts * 8 / bits_per_second(arguments.rate)
    print(f"{arguments.hosts} hosts with {arguments.workers} workers each, {arguments.rate}\n")
    print("| bytes | algorithm | ms (least–greatest) | of the limit |\n|---|---|---|---|", flush=True)
    for size, by_algorithm in measure(arguments).items():
        for algorithm, seconds in by_algorithm.items():
            times = [1e3 * each for each in seconds]
            median = statistics.median(times)
            share = median / (1e3 * limit * int(size))
            spread = f"{median:.3g} ({min(times):.3g}–{max(times):.3g})"
            print(f"| {int(size):,} | {algorithm} | {spread} | {share:.2f}× |", flush=True)


if __name__ == "__main__":
    main()
