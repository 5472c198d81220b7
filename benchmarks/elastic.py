"""Compares what a lost worker costs: elastic training, and a restart of all workers from a backup, in turn.

    python -m benchmarks.elastic [--workers 4] [--width 2700] [--steps 60] [--repeats 3]

The model has 2 · width² weights. A worker kills itself in the middle of training. Printed are, for each repeat, the seconds from
there until rank 0 has finished the step that was cut off, and the medians of a step without a fault.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_SECONDS_A_JOB = 600


def run(
    workers: int, way: str, arguments: list[str], launcher: list[str], kill_at: int = 0
) -> tuple[float, float]:
    """Runs a job. Returns the median of a step of rank 0 in seconds, and the time lost by the fault, or 0.

    Raises:
        RuntimeError: the job failed; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            sys.executable, "-m", "tf_strategies.launcher.run", "--workers", str(workers), *launcher, "-m",
            "benchmarks.elastic_worker", "--way", way, "--folder", name, *arguments,
        ]  # fmt: skip
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS_A_JOB
        )
        if done.returncode:
            raise RuntimeError(f"{way} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        ends = [(int(step), float(at)) for step, at in _lines(folder / "steps0")]
        seconds = [after - at for (_, at), (_, after) in zip(ends[5:], ends[6:])]
        fault = folder / "fault"
        if not fault.exists():
            return statistics.median(seconds), 0.0
        killed = float(fault.read_text())
        return statistics.median(seconds), min(
            at for step, at in ends if step == kill_at and at > killed
        ) - killed


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--width", type=int, default=2700)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    sizes = ["--width", str(given.width), "--steps", str(given.steps)]
    kill_at = given.steps // 2
    fault = ["--kill-at", str(kill_at), "--victim", str(given.workers - 1)]
    print(
        "| repeat | step, ms | elastic | copy_every=10 | lost, s: elastic | copy_every=10 | restart from a backup |"
    )
    print("|---|---|---|---|---|---|---|")
    for repeat in range(1, given.repeats + 1):
        plain, _ = run(given.workers, "plain", sizes, [])
        elastic, _ = run(given.workers, "elastic", sizes, [])
        rarely, _ = run(given.workers, "rarely", sizes, [])
        others_go_on, again = ["--min-workers", "1"], ["--restarts", "1", "--survivor-wait", "1"]
        lost = [
            run(given.workers, way, [*sizes, *fault], launcher, kill_at)[1]
            for way, launcher in (("elastic", others_go_on), ("rarely", others_go_on), ("backup", again))
        ]
        steps = " | ".join(f"{1e3 * each:.1f}" for each in (plain, elastic, rarely))
        print(f"| {repeat} | {steps} | {' | '.join(f'{each:.2f}' for each in lost)} |", flush=True)


if __name__ == "__main__":
    main()
