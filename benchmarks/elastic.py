"""Compares what a lost worker costs: elastic training, a restart of all workers from a backup, and Horovod Elastic, in turn.

    python -m benchmarks.elastic [--workers 4] [--width 2700] [--steps 60] [--repeats 3] [--horovod .venv/peers/bin/horovodrun]

The model has 2 · width² weights. A worker kills itself in the middle of training. Printed are, for each repeat, the seconds from
there until rank 0 has finished the step that was cut off, and the medians of a step without a fault. Horovod needs
`make bench-peers`, and runs on TensorFlow 2.15: measure this package on it, too.
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


class Job:
    """Runs jobs of one size.

    Args:
        workers: the number of workers.
        sizes: the arguments of a worker.
        kill_at: the step in which the last worker kills itself, if there is to be a fault.
    """

    def __init__(self, workers: int, sizes: list[str], kill_at: int) -> None:
        self._workers, self._sizes, self._kill_at = workers, sizes, kill_at

    def ours(self, way: str, launcher: list[str], *, fault: bool = False) -> tuple[float, float]:
        """Returns what `_run` returns for this package."""
        launch = [sys.executable, "-m", "tf_strategies.launcher.run", "--workers", str(self._workers)]
        victim = ["--victim", str(self._workers - 1)]
        worker = ["-m", "benchmarks.elastic_worker", "--way", way]
        return self._run([*launch, *launcher, *worker, *victim], fault)

    def horovod(self, program: Path, *, fault: bool = False) -> tuple[float, float]:
        """Returns what `_run` returns for Horovod Elastic.

        It gives up the host of a lost worker, so the last worker is on a host of its own: another name of this machine.
        """
        with tempfile.TemporaryDirectory() as name:
            hosts = Path(name, "hosts.sh")
            hosts.write_text(f"#!/bin/sh\necho localhost:{self._workers - 1}\necho 127.0.0.1:1\n")
            hosts.chmod(0o755)
            numbers = ["-np", str(self._workers), "--min-np", "1", "--max-np", str(self._workers)]
            gloo = ["--gloo", "--network-interfaces", "lo", "--host-discovery-script", str(hosts)]
            worker = [str(program.parent / "python"), "-m", "benchmarks.horovod_elastic_worker"]
            return self._run([str(program), *numbers, *gloo, *worker], fault, may_fail=fault)

    def _run(self, command: list[str], fault: bool, *, may_fail: bool = False) -> tuple[float, float]:
        """Runs a job. Returns the median of a step of rank 0 in seconds, and the time lost by the fault, or 0.

        Args:
            command: starts the job.
            fault: whether a worker kills itself.
            may_fail: whether the job may report the lost worker as its failure, although the others went on.

        Raises:
            RuntimeError: the job failed; its output is in the message.
        """
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            command = [*command, "--folder", name, *self._sizes]
            if fault:
                command += ["--kill-at", str(self._kill_at)]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_SECONDS_A_JOB
            )
            ends = [(int(step), float(at)) for step, at, _ in _lines(folder / "steps0")]
            if done.returncode and not (may_fail and ends and ends[-1][0] > self._kill_at):
                raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
            seconds = [after - at for (_, at), (_, after) in zip(ends[5:], ends[6:])]
            if not fault:
                return statistics.median(seconds), 0.0
            killed = float((folder / "fault").read_text())
            ended = min(at for step, at in ends if step == self._kill_at and at > killed)
            return statistics.median(seconds), ended - killed


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--width", type=int, default=2700)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--horovod", type=Path, help="the program horovodrun, to measure Horovod Elastic, too"
    )
    given = parser.parse_args()
    job = Job(given.workers, ["--width", str(given.width), "--steps", str(given.steps)], given.steps // 2)
    theirs = ["Horovod"] if given.horovod else []
    ways = ["elastic", "copy_every=10"]
    columns = [
        "repeat",
        "step, ms",
        *ways,
        *theirs,
        f"lost, s: {ways[0]}",
        *ways[1:],
        "restart from a backup",
        *theirs,
    ]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    others_go_on, again = ["--min-workers", "1"], ["--restarts", "1", "--survivor-wait", "1"]
    for repeat in range(1, given.repeats + 1):
        steps = [job.ours(way, [])[0] for way in ("plain", "elastic", "rarely")]
        if given.horovod:
            steps.append(job.horovod(given.horovod)[0])
        lost = [
            job.ours(way, launcher, fault=True)[1]
            for way, launcher in (("elastic", others_go_on), ("rarely", others_go_on), ("backup", again))
        ]
        if given.horovod:
            lost.append(job.horovod(given.horovod, fault=True)[1])
        figures = [*(f"{1e3 * each:.1f}" for each in steps), *(f"{each:.2f}" for each in lost)]
        print(f"| {repeat} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
