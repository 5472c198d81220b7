"""Simulates how much of its speed a training keeps when workers fail: elastic training, and restarts from checkpoints.

    python -m benchmarks.goodput [--sizes 8,64,512,4096] [--days 1,7,30,180] [--plot goodput.png]

Workers fail independently of one another, at random: each after a mean of `--days`. The goodput is the part of its time in which
the job trains, weighted with the workers that are alive: 1 means that nothing fails.

Elastic: a loss stops all workers for `--lost` seconds. The others then do its work, until the worker is back after `--back`
seconds, which stops all for `--joined` seconds. Restarts: a failure takes all workers back to the last checkpoint, after
`--restart` seconds. A checkpoint takes `--save` seconds, at the interval of Young 1974, "A first order approximation to the
optimum checkpoint interval".

The defaults of `--lost`, `--joined` and `--restart` are those that `benchmarks.elastic` measures with four workers. How they
grow with the number of workers is not known here; give other values to see what follows.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_DAY = 86400.0
_FAILURES = 2000  # of one simulation


class Times(NamedTuple):
    """Holds the seconds that a failure costs. The module describes the fields."""

    lost: float
    joined: float
    back: float
    restart: float
    save: float


def elastic(size: int, mean: float, times: Times, draw: random.Random) -> float:
    """Returns the goodput of elastic training.

    Args:
        size: the number of workers.
        mean: the mean time until a worker fails, in seconds.
        times: what happens then.
        draw: draws the failures.
    """
    now = work = 0.0
    alive, returns = size, [math.inf]
    for _ in range(_FAILURES):
        failure = now + draw.expovariate(max(alive, 1) / mean)
        while returns[0] <= failure or not alive:
            at = max(now, heapq.heappop(returns))
            work += (at - now) * alive / size
            now = at + times.joined
            alive += 1
            failure = now + draw.expovariate(alive / mean)
        work += (failure - now) * alive / size
        now = failure + times.lost
        alive -= 1
        heapq.heappush(returns, failure + times.back)
    return work / now


def restarts(size: int, mean: float, times: Times, draw: random.Random) -> float:
    """Returns the goodput with restarts from checkpoints; the arguments are those of `elastic`."""
    interval = interval_of(size, mean, times)
    now = work = 0.0
    for _ in range(_FAILURES):
        seconds = draw.expovariate(size / mean)
        trains = max(0.0, seconds - times.restart)
        work += interval * (trains // (interval + times.save))
        now += seconds
    return work / now


def interval_of(size: int, mean: float, times: Times) -> float:
    """Returns the seconds of training between two checkpoints."""
    return math.sqrt(2 * times.save * mean / size)


def simulate(sizes: Sequence[int], days: Sequence[float], times: Times, seed: int = 0) -> list[dict]:
    """Returns a row for each number of workers and each mean time until one fails."""
    return [
        {
            "size": size,
            "days": each,
            "minutes": each * _DAY / size / 60,
            "elastic": elastic(size, each * _DAY, times, random.Random(seed)),
            "restarts": restarts(size, each * _DAY, times, random.Random(seed)),
        }
        for size in sizes
        for each in days
    ]


def table(rows: Sequence[dict]) -> str:
    lines = [
        "| workers | one fails after, days | the job, after minutes | elastic | restarts |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['size']:,} | {row['days']:g} | {row['minutes']:,.1f} | {row['elastic']:.3f} | {row['restarts']:.3f} |"
        )
    return "\n".join(lines)


def plot(rows: Sequence[dict], path: Path) -> None:
    """Draws the goodput against the number of workers.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for number, days in enumerate(sorted({row["days"] for row in rows})):
        for way, style in (("elastic", "-"), ("restarts", "--")):
            line = [(row["size"], row[way]) for row in rows if row["days"] == days]
            panel.semilogx(
                *zip(*line),
                style,
                marker=".",
                color=f"C{number}",
                label=f"{way}, one fails after {days:g} days",
            )
    sizes = sorted({row["size"] for row in rows})
    panel.set_xticks(sizes, labels=[f"{size:,}" for size in sizes])
    panel.xaxis.minorticks_off()
    panel.set(xlabel="workers", ylabel="goodput", ylim=(0, 1.02))
    panel.grid(True, alpha=0.3)
    panel.legend(fontsize="small")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_sizes, default=[8, 64, 512, 4096], help="numbers of workers")
    parser.add_argument(
        "--days", type=_seconds_list, default=[1, 7, 30, 180], help="means until a worker fails"
    )
    parser.add_argument("--lost", type=_seconds, default=1.1)
    parser.add_argument("--joined", type=_seconds, default=1.1)
    parser.add_argument(
        "--back", type=_seconds, default=600.0, help="until a worker is back (default: %(default)s)"
    )
    parser.add_argument("--restart", type=_seconds, default=12.0)
    parser.add_argument(
        "--save", type=_seconds, default=10.0, help="to write a checkpoint (default: %(default)s)"
    )
    parser.add_argument("--plot", type=Path, help="a file to draw")
    given = parser.parse_args(arguments)
    times = Times(given.lost, given.joined, given.back, given.restart, given.save)
    rows = simulate(given.sizes, given.days, times)
    print(table(rows))
    if given.plot:
        try:
            plot(rows, given.plot)
        except ModuleNotFoundError as error:
            print(f"{error}: install matplotlib, or leave out --plot", file=sys.stderr)
            return 1
    return 0


def _sizes(text: str) -> list[int]:
    sizes = [int(part) for part in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"numbers of workers are 1 at least; got {text}")
    return sizes


def _seconds_list(text: str) -> list[float]:
    return [_seconds(part) for part in text.split(",")]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"a time is a number above 0; got {text}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
