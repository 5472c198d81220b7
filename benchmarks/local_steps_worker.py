"""One worker of benchmarks.local_steps: `fit` of an MLP with each system, in turn, round after round."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import tensorflow as tf

import tf_strategies as tfs
from benchmarks.fit_models import build_mlp, compile_model, endless_batches, make_optimizer

_ROWS = 8
_SYNCHRONOUS_STEPS = 3
_NEVER = 1 << 30


class Window(tf.keras.callbacks.Callback):
    """Measures seconds and bytes of a step, from the end of one step to the end of the last one, and the longest step."""

    def __init__(self, strategy: tfs.CollectiveAllReduceStrategy, first: int, last: int) -> None:
        super().__init__()
        self._strategy, self._first, self._last = strategy, first, last
        self._start = 0.0, 0
        self._before = self._longest = 0.0
        self.of_step = 0.0, 0.0, 0.0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        now = time.monotonic()
        if batch + 1 > self._first:
            self._longest = max(self._longest, now - self._before)
        self._before = now
        if batch + 1 not in (self._first, self._last):
            return
        sent = self._strategy.communication_stats().bytes_sent
        if batch + 1 == self._first:
            self._start = now, sent
            return
        steps = self._last - self._first
        self.of_step = (now - self._start[0]) / steps, (sent - self._start[1]) / steps, self._longest


def run(options: tfs.LocalSGD | None, first: int, last: int) -> tuple[float, float, float]:
    """Returns the seconds and the bytes of a step, and the seconds of the longest one."""
    strategy = tfs.CollectiveAllReduceStrategy(local_steps=options)
    with strategy.scope():
        model = build_mlp(0)
        compile_model(model, make_optimizer("mlp"))
    window = Window(strategy, first, last)
    data = endless_batches("mlp", _ROWS, 0, seed=strategy.rank)
    model.fit(data, steps_per_epoch=last, epochs=1, verbose=0, callbacks=[window])
    strategy.close()
    tf.keras.backend.clear_session()
    return window.of_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sync-every", type=int, required=True)
    parser.add_argument("--averages", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    every, last = given.sync_every, given.sync_every * (given.averages + 1)
    overlap = (every - 1) // 4
    systems: dict[str, tuple[tfs.LocalSGD | None, int, int]] = {
        "no network": (tfs.LocalSGD(sync_every=_NEVER), every, last),
        "synchronous": (None, 1, 1 + _SYNCHRONOUS_STEPS),
        "LocalSGD": (tfs.LocalSGD(sync_every=every), every, last),
        "DiLoCo": (tfs.DiLoCo(sync_every=every), every, last),
        "DiLoCo, 8 bits": (tfs.DiLoCo(sync_every=every, quantize=8), every, last),
        "DiLoCo, 4 bits": (tfs.DiLoCo(sync_every=every, quantize=4), every, last),
        "DiLoCo, 4 fragments": (tfs.DiLoCo(sync_every=every, fragments=4), every, last),
        "DiLoCo, 4 fragments, overlap": (
            tfs.DiLoCo(sync_every=every, fragments=4, overlap_steps=overlap),
            every,
            last,
        ),
        "DiLoCo, 4 fragments, overlap, 4 bits": (
            tfs.DiLoCo(sync_every=every, fragments=4, overlap_steps=overlap, quantize=4),
            every,
            last,
        ),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in systems}
    for _ in range(given.rounds):
        for name, system in systems.items():
            found[name].append(run(*system))
            print(name, found[name][-1], flush=True)
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    Path(given.results, f"steps-{index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
