"""One of several workers that train a tiny model for long and say what they hold.

python -m tests.soak.fit_worker '{"rounds": {"warm": 2, "flat": 4}, "epochs": 2, "steps": 50, "every": 25, "leak": ""}'

A round is one `fit` with validation and callbacks, then `evaluate` and `predict`. Prints "sample <phase> <JSON>" every so many
steps, and "weights <step> <sha256>" after each round. `leak` names a phase in which every step keeps 1 KB.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.soak.resources import measure

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
BATCH, FEATURES = 32, 8
LEAKED_BYTES = 1024


class Witness(keras.callbacks.Callback):
    """Says what the process holds every `every` steps, and leaks when told to."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every
        self._kept: list = []
        self.phase = ""
        self.leaks = False
        self.step = 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.step += 1
        if self.leaks:
            self._kept.append(bytearray(LEAKED_BYTES))
        if self.step % self._every == 0:
            sample = json.dumps(dataclasses.asdict(measure(self.step)))
            print("sample", self.phase, sample, flush=True)


def make_model(strategy: tfs.CollectiveAllReduceStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((FEATURES,)),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(
            "adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(num_thresholds=20)]
        )
    return model


def digest(model: keras.Model) -> str:
    """Of the trainable weights and the optimizer's slots: what must be bit-identical on all workers."""
    optimizer = model.optimizer.variables
    variables = [*model.trainable_variables, *(optimizer() if callable(optimizer) else optimizer)]
    return hashlib.sha256(b"".join(np.asarray(each.numpy()).tobytes() for each in variables)).hexdigest()


def main(plan: dict) -> None:
    strategy = tfs.CollectiveAllReduceStrategy()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(2).standard_normal((plan["steps"] * BATCH, FEATURES)).astype("float32")
    y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
    x_test, y_test = x[: 3 * BATCH + 5], y[: 3 * BATCH + 5]
    model = make_model(strategy)
    witness = Witness(plan["every"])
    with tempfile.TemporaryDirectory() as folder:
        for phase, rounds in plan["rounds"].items():
            gc.collect()
            gc.freeze()  # what was there before need not be searched at each sample
            witness.phase, witness.leaks = phase, phase == plan["leak"]
            for _ in range(rounds):
                model.fit(
                    x,
                    y,
                    batch_size=BATCH,
                    epochs=plan["epochs"],
                    validation_data=(x_test, y_test),
                    validation_freq=2,
                    verbose=0,
                    callbacks=[
                        witness,
                        keras.callbacks.EarlyStopping("loss", patience=10_000),
                        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
                        keras.callbacks.CSVLogger(str(Path(folder) / "log.csv")),
                    ],
                )
                loss = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)[0]
                model.predict(x_test, batch_size=BATCH, verbose=0)
                print("weights", witness.step, digest(model), f"loss {loss:.5f}", flush=True)
    strategy.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
