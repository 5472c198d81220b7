"""Runs one process of benchmarks.half_weights: a server, or a worker, as TF_CONFIG says. Worker 0 writes what it measured."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import tensorflow as tf

import tf_strategies as tfs
from benchmarks.parameter_server_worker import build_model, endless_batches
from tf_strategies.parameter_server.variables.server_variable import ServerVariable

_WIDTHS = [3072, 3072, 768]
_SECONDS = 600.0


class Workers:
    """Lets the workers wait for each other, by files in a folder."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._folder, self._rank, self._size = folder, rank, size

    def meet(self, name: str) -> None:
        """Waits until all workers have come to the point of this name.

        Raises:
            TimeoutError: one has not.
        """
        (self._folder / f"{name}.{self._rank}").touch()
        until = time.monotonic() + _SECONDS
        while not all((self._folder / f"{name}.{rank}").exists() for rank in range(self._size)):
            if time.monotonic() > until:
                raise TimeoutError(f"a worker did not come to {name!r} within {_SECONDS:.0f} s")
            time.sleep(0.01)


def processor_seconds(pids: list[int]) -> float:
    """Returns the processor time that these processes have taken since they began, in seconds."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", choices=["async", "sync"], required=True)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    kind = tfs.SyncReplicasStrategy if arguments.strategy == "sync" else tfs.AsyncParameterServerStrategy
    strategy = kind()
    workers = Workers(arguments.folder, strategy.rank, strategy.size)
    tf.keras.mixed_precision.set_global_policy(arguments.policy)
    models = {}
    for caster in ("worker", "server"):
        with strategy.scope():
            models[caster] = build_model(_WIDTHS)
    results: dict[str, list[dict[str, float]]] = {caster: [] for caster in models}
    steps = arguments.steps * strategy.size
    for number in range(arguments.rounds + 1):  # the first one warms up
        for caster, model in models.items():
            ServerVariable.casts_on_servers = caster == "server"
            workers.meet(f"{number} {caster} begins")
            pids = json.loads((arguments.folder / "pids").read_text())
            begin, spent = time.monotonic(), processor_seconds(pids)
            model.fit(endless_batches(), steps_per_epoch=arguments.steps, verbose=0)
            workers.meet(f"{number} {caster} ends")
            took = time.monotonic() - begin
            spent = processor_seconds(pids) - spent
            if number:
                results[caster].append({"rate": steps / took, "processor": spent / steps})
    if strategy.rank == 0:
        (arguments.folder / "results.json").write_text(json.dumps(results))
    workers.meet("end")


if __name__ == "__main__":
    main()
