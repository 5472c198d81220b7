"""One process of a contestant of benchmarks.fit: trains so many steps when it is told to (see benchmarks/contest.py).

An order is a line "_ STEPS" in the pipe "orders.R". The answer in "answers" has the mean seconds of a step, from the end of
the one before the first to the end of the last, on this rank; the first two of an epoch do not count, and an epoch trained
before the first order compiles. `extra_bytes` is the peak of the resident memory since the order came (VmHWM). The file
"weights.R" has the sum of the squares of the trained weights, to see that ranks agree; of ours "pack" has the bytes of the
largest pack, if all gradients are dense.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from benchmarks.contestant import forget_peak, memory
from benchmarks.fit_models import MODELS, compile_model, endless_batches, make_optimizer

SYSTEMS = ("ours", "mwms", "horovod", "alone", "side_by_side")
_UNCOUNTED = 2


class Clock(tf.keras.callbacks.Callback):
    """Takes the time at the end of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.ends.append(time.perf_counter())


@dataclasses.dataclass
class System:
    """How a system takes part in training: its strategy, if it has one, and what it wraps or adds."""

    strategy: Any = None
    optimizer: Callable[[Any], Any] = lambda optimizer: optimizer
    first_callbacks: tuple = ()


def ours(arguments: argparse.Namespace) -> System:
    import tf_strategies as tfs

    options = tfs.CommunicationOptions(transport=arguments.transport)
    return System(tfs.CollectiveAllReduceStrategy(options))


def mwms(_: argparse.Namespace) -> System:
    if hasattr(tf.keras, "ops"):
        raise SystemExit(
            "`fit` of Keras 3 raises with MultiWorkerMirroredStrategy; use TF 2.15, or tf_keras with TF_USE_LEGACY_KERAS=1"
        )
    return System(tf.distribute.MultiWorkerMirroredStrategy())


def horovod(arguments: argparse.Namespace) -> System:
    import horovod.tensorflow.keras as hvd

    from benchmarks.horovod_ranks import join

    join(arguments.folder, arguments.rank, arguments.ranks)
    hvd.init()
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    return System(optimizer=hvd.DistributedOptimizer, first_callbacks=(broadcast,))


def without_communication(_: argparse.Namespace) -> System:
    return System()


class Trainer:
    """A compiled model that has been trained for a few steps."""

    def __init__(self, system: System, arguments: argparse.Namespace) -> None:
        data = endless_batches(arguments.model, arguments.batch, arguments.image_size, seed=arguments.rank)
        if system.strategy is None:
            self._model = self._make(system, arguments)
            self._data = data
        else:
            with system.strategy.scope():
                self._model = self._make(system, arguments)
            self._data = system.strategy.distribute_datasets_from_function(lambda _: data)
        self._fit(_UNCOUNTED + 1, system.first_callbacks)

    @staticmethod
    def _make(system: System, arguments: argparse.Namespace) -> tf.keras.Model:
        model = MODELS[arguments.model](arguments.image_size)
        compile_model(model, system.optimizer(make_optimizer(arguments.model)))
        return model

    def seconds_a_step(self, steps: int) -> float:
        clock = Clock()
        self._fit(steps + _UNCOUNTED, (clock,))
        return (clock.ends[-1] - clock.ends[_UNCOUNTED - 1]) / steps

    def sum_of_squares(self) -> float:
        return float(
            sum(np.sum(np.square(each.numpy(), dtype=float)) for each in self._model.trainable_weights)
        )

    def largest_pack(self, bytes_per_pack: int) -> int:
        from tf_strategies.collective.exchange.packing import plan_packs

        sizes = [4 * int(np.prod(each.shape)) for each in self._model.trainable_weights]
        packs = plan_packs([("float32", size) for size in sizes], bytes_per_pack)
        return max(sum(sizes[position] for position in pack) for pack in packs)

    def _fit(self, steps: int, callbacks: tuple) -> None:
        self._model.fit(self._data, steps_per_epoch=steps, verbose=0, callbacks=list(callbacks))


def serve(folder: Path, rank: int, trainer: Trainer) -> None:
    with (folder / f"orders.{rank}").open() as orders, (folder / "answers").open("w") as answers:
        for line in orders:
            forget_peak()
            seconds = trainer.seconds_a_step(int(line.split()[1]))
            peak = memory("VmHWM")
            (folder / f"weights.{rank}").write_text(repr(trainer.sum_of_squares()))
            answers.write(json.dumps({"rank": rank, "seconds": seconds, "extra_bytes": peak}) + "\n")
            answers.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    arguments = parser.parse_args()
    system = {"ours": ours, "mwms": mwms, "horovod": horovod}.get(arguments.system, without_communication)
    trainer = Trainer(system(arguments), arguments)
    if arguments.system == "ours":
        from tf_strategies import CommunicationOptions

        (arguments.folder / "pack").write_text(
            str(trainer.largest_pack(CommunicationOptions().bytes_per_pack))
        )
    serve(arguments.folder, arguments.rank, trainer)
    # Servers and background threads of TensorFlow and Horovod would hold the process up.
    os._exit(0)


if __name__ == "__main__":
    main()
