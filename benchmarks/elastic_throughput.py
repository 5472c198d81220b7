"""Measures how much of its speed a `fit` with `elastic=` keeps while workers are killed, and start again.

    python -m benchmarks.elastic_throughput [--workers 4] [--width 2700] [--minutes 5] [--every 30] [--seed 1]

The model has 2 · width² weights, and each step has the same rows, whatever the number of workers. A random worker is killed
every so many seconds, and `tfs-run --spare` starts it again. A step is worth the median time of all steps of as many workers, in
the same run. If these are few, their median has the pauses: such a step is worth as much as one of all workers. Printed is what
all steps are worth, as a part of the time that they took: 100 % is the speed of the workers that are alive, if workers were lost
and came back in no time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import ending

_START_SECONDS = 120
_END_SECONDS = 30
_MORE_STEPS_THAN_TIME = 1_000_000
_FIRST_STEPS = 5  # which trace


class Step(NamedTuple):
    """Holds the seconds at which a step ended, and the number of workers that took it."""

    at: float
    size: int


def steps_of(folder: Path) -> dict[int, Step]:
    """Returns the steps that any worker has finished, by number, as the first worker has finished them."""
    steps: dict[int, Step] = {}
    for file in folder.glob("steps*"):
        for line in file.read_text().splitlines():
            number, at, size = line.split()
            step = Step(float(at), int(size))
            steps[int(number)] = min(steps.get(int(number), step), step)
    return steps


def kept_speed(steps: dict[int, Step], *, enough: int = 50) -> tuple[float, dict[int, float]]:
    """Returns what the steps are worth as a part of their time, and the seconds that one is worth by the number of workers.

    Args:
        steps: the steps, by number. Those of the first trace are left out.
        enough: how many steps of as many workers have a median without the pauses.

    Raises:
        ValueError: a step between the first and the last is missing.
    """
    numbers = sorted(steps)[_FIRST_STEPS:]
    if numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise ValueError(f"of steps {numbers[0]} to {numbers[-1]}, only {len(numbers)} were finished")
    seconds = {after: steps[after].at - steps[before].at for before, after in zip(numbers, numbers[1:])}
    of_size: dict[int, list[float]] = {}
    for number, took in seconds.items():
        of_size.setdefault(steps[number].size, []).append(took)
    whole = statistics.median(of_size[max(of_size)])
    worth_of = {
        size: statistics.median(took) if len(took) >= enough else whole for size, took in of_size.items()
    }
    worth = sum(worth_of[steps[number].size] for number in seconds)
    return worth / sum(seconds.values()), worth_of


@contextlib.contextmanager
def _job(workers: int, width: int, folder: Path) -> Iterator[subprocess.Popen]:
    launcher = ["-m", "tf_strategies.launcher.run", "--workers", str(workers), "--min-workers", "2"]
    again = ["--spare", "--restarts", "1000"]
    worker = ["-m", "benchmarks.elastic_worker", "--way", "elastic", "--folder", str(folder), "--by-process"]
    sizes = ["--width", str(width), "--steps", str(_MORE_STEPS_THAN_TIME), "--rows", str(8 * workers)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with (folder / "log").open("w") as log, subprocess.Popen(
        [sys.executable, *launcher, *again, *worker, *sizes],
        env=environment, stdout=log, stderr=log, preexec_fn=ending.with_parent,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # its workers end with it


def _log(folder: Path) -> str:
    return (folder / "log").read_text()[-4000:]


def _alive(folder: Path) -> list[int]:
    """Returns the processes that have taken a step and have not ended."""
    found = [int(file.name.removeprefix("steps")) for file in folder.glob("steps*") if file.stat().st_size]
    return [each for each in found if Path(f"/proc/{each}").exists()]


def measure(workers: int, width: int, seconds: float, every: float, draw: random.Random, folder: Path) -> int:
    """Runs a `fit`, and kills workers. Returns the number that was killed.

    Raises:
        RuntimeError: the job has ended, or does not begin in time; its output is in the message.
    """
    killed = 0
    with _job(workers, width, folder) as job:
        begins = time.monotonic() + _START_SECONDS
        while len(_alive(folder)) < workers and job.poll() is None:
            if time.monotonic() > begins:
                raise RuntimeError(f"not all workers took a step within {_START_SECONDS} s:\n{_log(folder)}")
            time.sleep(0.1)
        end, next_fault = time.monotonic() + seconds, time.monotonic() + every
        while time.monotonic() < end and job.poll() is None:
            time.sleep(0.1)
            alive = _alive(folder)
            if time.monotonic() > next_fault and len(alive) > 2:
                os.kill(draw.choice(sorted(alive)), signal.SIGKILL)
                killed, next_fault = killed + 1, next_fault + every
        if job.poll() is not None:
            raise RuntimeError(f"the job ended with {job.returncode}:\n{_log(folder)}")
    return killed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--width", type=int, default=2700)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of workers")
    given = parser.parse_args(arguments)
    if given.workers < 3:
        parser.error(f"--workers is 3 at least; got {given.workers}")
    with tempfile.TemporaryDirectory() as name:
        draw = random.Random(given.seed)
        killed = measure(given.workers, given.width, 60 * given.minutes, given.every, draw, Path(name))
        steps = steps_of(Path(name))
    speed, worth_of = kept_speed(steps)
    print(
        f"{killed} workers killed, {len(steps)} steps: {100 * speed:.1f} % of the speed of the workers that are alive"
    )
    for size, seconds in sorted(worth_of.items()):
        taken = sum(step.size == size for step in steps.values())
        print(f"{size} workers: {taken} steps, each worth {1e3 * seconds:.1f} ms")


if __name__ == "__main__":
    main()
