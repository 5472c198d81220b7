"""One worker of a benchmark at each of several addresses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Sequence

from benchmarks import ending


def run_workers(
    argv: Sequence[str],
    addresses: Sequence[str],
    folder: Path,
    *,
    seconds: float,
    prefixes: Sequence[list[str]] = (),
) -> None:
    """Starts `argv` once for each address, with its TF_CONFIG, on the CPU, and waits for all; they end with this process.

    Each writes workerN.log.

    Args:
        argv: the command.
        addresses: "host:port" by worker.
        folder: for the logs.
        seconds: after which they are ended.
        prefixes: what a worker's command begins with, to run it on another host; none when empty.

    Raises:
        RuntimeError: a worker failed; the end of its log is in the message.
        subprocess.TimeoutExpired: they took too long.
    """
    running = []
    try:
        for index in range(len(addresses)):
            cluster = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": index}}
            environment = {
                **os.environ,
                "TF_CONFIG": json.dumps(cluster),
                "CUDA_VISIBLE_DEVICES": "",
                "TF_CPP_MIN_LOG_LEVEL": "2",
            }
            command = [*(prefixes[index] if prefixes else []), *argv]
            with (folder / f"worker{index}.log").open("w") as log:
                running.append(
                    subprocess.Popen(
                        command, env=environment, stdout=log, stderr=log, preexec_fn=ending.with_parent
                    )
                )
        for index, process in enumerate(running):
            if process.wait(timeout=seconds):
                text = (folder / f"worker{index}.log").read_text()
                raise RuntimeError(f"worker {index} ended with {process.returncode}:\n{text[-4000:]}")
    finally:
        for process in running:
            process.kill()
            process.wait()
