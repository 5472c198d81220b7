"""Parameter servers against TensorFlow's own, in one run, in turn: steps per second of Keras `fit` over all workers.

    python -m benchmarks.parameter_server [--workers 1,2,4] [--servers 1,2] [--models 2,15] [--rounds 3]

The model is an MLP of about 2 or 15 million parameters, batch 32 a worker, plain SGD. Of each run the first epochs warm up; the
rest is measured, while all workers train. "tensorflow" is `tf.distribute.ParameterServerStrategy` (with tf_keras where Keras
is Keras 3), which needs a coordinator process besides; "async" and "sync" are ours; "alone" is the limit: as many processes
that train at the same time without servers, each its own model. Printed are medians over rounds, the least and the greatest,
and the ratio to TensorFlow's. What a step has to move is twice the model's size.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

from benchmarks.hosts import Hosts
from tf_strategies.launcher.ports import ReservedPorts

_WIDTHS = {2: "1024,1150", 15: "3072,3072,768"}
_STEPS = {2: 60, 15: 15}
_WARM_EPOCHS, _EPOCHS = 1, 4
_SECONDS_A_RUN = 600
_PORT = 22099
_KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"} if importlib.util.find_spec("tf_keras") else {}


def measure(system: str, transport: str, workers: int, servers: int, millions: int) -> float:
    """Steps per second of all workers together.

    Raises:
        RuntimeError: a process failed; its output is in the message.
    """
    roles = {"worker": workers}
    if system != "alone":
        roles["ps"] = servers
    if system == "tensorflow":
        roles["chief"] = 1
    training = ("chief",) if system == "tensorflow" else ("worker",)
    with tempfile.TemporaryDirectory() as folder, processes(roles, folder) as start:
        command = [
            sys.executable, "-m", "benchmarks.parameter_server_worker", "--system", system, "--transport", transport,
            "--widths", _WIDTHS[millions], "--steps", str(_STEPS[millions]), "--epochs", str(_EPOCHS),
            "--results", folder,
        ]  # fmt: skip
        running = start(command)
        for (role, index), process in running.items():
            if role in training and process.wait(timeout=_SECONDS_A_RUN):
                log = Path(folder, f"{role}{index}.log").read_text()
                raise RuntimeError(
                    f"{role} {index} of {system} ended with {process.returncode}:\n{log[-4000:]}"
                )
        results = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    return sum(_rate(result, results) for result in results)


def _rate(result: dict, results: list[dict]) -> float:
    """Steps per second of one trainer over its whole epochs while all train."""
    begin = max(other["ends"][_WARM_EPOCHS - 1] for other in results)
    end = min(other["ends"][-1] for other in results)
    inside = [moment for moment in result["ends"] if begin <= moment <= end]
    return (len(inside) - 1) * result["steps"] / (inside[-1] - inside[0]) if len(inside) > 1 else 0.0


@contextlib.contextmanager
def processes(roles: dict[str, int], folder: str, rate: str = "") -> Iterator:
    """Starts a process for each task, with logs in the folder; what still runs at the end is killed.

    Args:
        roles: how many tasks each role has.
        folder: for logs.
        rate: of the links of the hosts, of which each process has one, as `tc` writes it; "" for one host.
    """
    tasks = [(role, index) for role, count in roles.items() for index in range(count)]
    running: dict[tuple[str, int], subprocess.Popen] = {}
    with contextlib.ExitStack() as held:
        hosts = held.enter_context(Hosts(len(tasks), rate)) if rate else None
        if hosts is None:
            addresses = held.enter_context(ReservedPorts(len(tasks))).addresses
        else:
            addresses = [f"{address}:{_PORT}" for address in hosts.addresses]
        cluster: dict[str, list[str]] = {}
        for (role, _), address in zip(tasks, addresses):
            cluster.setdefault(role, []).append(address)

        def start(command: list[str]) -> dict[tuple[str, int], subprocess.Popen]:
            for number, (role, index) in enumerate(tasks):
                log = held.enter_context(Path(folder, f"{role}{index}.log").open("w"))
                config = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
                quiet = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", **_KERAS_2}
                running[role, index] = subprocess.Popen(
                    command if hosts is None else hosts.command(number, command),
                    env={**os.environ, **quiet, "TF_CONFIG": config},
                    stdout=log,
                    stderr=log,
                )
            return running

        try:
            yield start
        finally:
            for process in running.values():
                process.kill()
                process.wait()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=_numbers, default=[1, 2, 4])
    parser.add_argument("--servers", type=_numbers, default=[1, 2])
    parser.add_argument(
        "--models", type=_numbers, default=[2, 15], help=f"millions of parameters: {list(_WIDTHS)}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--systems",
        default="tensorflow,async:grpc,async:auto,sync:auto,alone",
        help="what to measure, ours with a transport after the colon; the first is what the others are compared to",
    )
    arguments = parser.parse_args()
    systems = arguments.systems.split(",")
    print("| parameters | servers | workers | system | steps/s (least, greatest) | ratio |")
    print("|---|---|---|---|---|---|", flush=True)
    for millions in arguments.models:
        for servers in arguments.servers:
            for workers in arguments.workers:
                rates: dict[str, list[float]] = {system: [] for system in systems}
                for _ in range(arguments.rounds):
                    for system in systems:
                        name, _, transport = system.partition(":")
                        rates[system].append(measure(name, transport or "auto", workers, servers, millions))
                base = statistics.median(rates[systems[0]])
                for system, found in rates.items():
                    middle = statistics.median(found)
                    print(
                        f"| {millions} M | {servers} | {workers} | {system} | {middle:.1f} ({min(found):.1f}, {max(found):.1f}) "
                        f"| {middle / base:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
