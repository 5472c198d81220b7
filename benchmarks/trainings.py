"""Trains with some workers, once for each of several names, and keeps the results, so that a second run makes what is missing."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Sequence

from benchmarks.workers import run_workers
from tf_strategies.launcher.ports import ReservedPorts

_SECONDS = 6 * 3600


def train_missing(
    module: str, options: Sequence[str], names: Sequence[str], workers: int, results: Path
) -> list[dict[str, Any]]:
    """Returns the results of the trainings with these names; those that are in the file already are not made again.

    Args:
        module: of the workers, which call `run_trainings`.
        options: of its command line, beside --results and --trainings.
        names: of the trainings, in order.
        workers: how many train together.
        results: the file, a line of JSON for each training.

    Raises:
        RuntimeError: a worker failed; its output is in the message.
    """
    results.touch()
    done = {result["training"] for result in _read(results)}
    missing = [name for name in names if name not in done]
    if missing:
        with tempfile.TemporaryDirectory() as logs, ReservedPorts(workers) as ports:
            argv = [
                sys.executable,
                "-m",
                module,
                *options,
                "--results",
                str(results),
                "--trainings",
                *missing,
            ]
            over = threading.Event()
            watcher = threading.Thread(target=_tell, args=(results, over))
            watcher.start()
            try:
                run_workers(argv, ports.addresses, Path(logs), seconds=_SECONDS)
            finally:
                over.set()
                watcher.join()
    by_name = {result["training"]: result for result in _read(results)}
    return [by_name[name] for name in names]


def run_trainings(names: Sequence[str], results: Path, train: Callable[[str], dict[str, Any]]) -> None:
    """Trains in a worker, once for each name. The first worker appends what `train` returns to the results."""
    chief = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0
    for name in names:
        result = {"training": name, **train(name)}
        if chief:
            with results.open("a") as file:
                file.write(json.dumps(result) + "\n")


def _read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()]


def _tell(path: Path, over: threading.Event) -> None:
    """Shows each line of a file that grows."""
    told = len(path.read_text().splitlines())
    while True:
        last = over.wait(1.0)
        lines = path.read_text().splitlines()
        for line in lines[told:]:
            print(line, file=sys.stderr, flush=True)
        told = len(lines)
        if last:
            return
