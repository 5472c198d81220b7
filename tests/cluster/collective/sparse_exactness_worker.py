"""One worker of the embeddings' exactness test: trains on every Keras there is, and keeps weights and bytes.

python -m tests.cluster.collective.sparse_exactness_worker OUTPUT_FOLDER LOCAL_REPLICAS
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

BATCH, STEPS, WORDS, LENGTH, WIDTH, CLASSES = 24, 12, 4000, 6, 5, 3
RATE, MOMENTUM, EPSILON = 0.5, 0.9, 1e-3
OPTIMIZERS = ("sgd", "momentum", "adam", "lazy momentum")


def data() -> tuple:
    """The rows of all steps: words [STEPS * BATCH, LENGTH], many of them often; labels [STEPS * BATCH]."""
    generator = np.random.default_rng(0)
    often = generator.integers(0, 20, (STEPS * BATCH, LENGTH)) * 7
    rarely = generator.integers(0, WORDS, (STEPS * BATCH, LENGTH))
    words = np.where(generator.random((STEPS * BATCH, LENGTH)) < 0.7, often, rarely)
    return words.astype("int32"), (words.sum(axis=1) % CLASSES).astype("int64")


def optimizer(keras, name: str):
    """None where this Keras has no such optimizer: Keras 3 has none that skips the rows that nobody touched."""
    if name == "adam":
        return keras.optimizers.Adam(RATE / 20, epsilon=EPSILON)
    if name != "lazy momentum":
        return keras.optimizers.SGD(RATE, momentum=MOMENTUM if name == "momentum" else 0.0)
    if not keras.__version__.startswith("2."):
        return None
    return keras.optimizers.legacy.SGD(RATE, momentum=MOMENTUM)


def bytes_gathered(strategy) -> int:
    """The bytes of all workers' rows so far."""
    entries = strategy.communication_stats().collectives
    return sum(each.bytes for each in entries if each.kind == "all_gather")


def main(folder: Path, local: int) -> None:
    from tests.support.replicas import on_cpus

    words, labels = data()
    modules = ["keras", "tf_keras"] if importlib.util.find_spec("tf_keras") else ["keras"]
    strategy = on_cpus(local)
    for module in modules:
        keras = importlib.import_module(module)
        for name in OPTIMIZERS:
            keras.utils.set_random_seed(100 + strategy.rank)
            with strategy.scope():
                how = optimizer(keras, name)
                if how is None:
                    continue
                normal = keras.initializers.RandomNormal(stddev=1.0, seed=strategy.rank)
                model = keras.Sequential(
                    [
                        keras.layers.Input((LENGTH,), dtype="int32"),
                        keras.layers.Embedding(WORDS, WIDTH, embeddings_initializer=normal),
                        keras.layers.GlobalAveragePooling1D(),
                        keras.layers.Dense(CLASSES, kernel_initializer=normal),
                    ]
                )
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                model.compile(how, loss)
            first = model.get_weights()
            marks: list = []

            class Marks(keras.callbacks.Callback):
                def on_train_batch_end(self, batch, logs=None, marks=marks):
                    marks.append(bytes_gathered(strategy))

            model.fit(words, labels, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Marks()])
            np.savez(
                folder / f"{module}-{name}-{strategy.rank}.npz",
                *first,
                *model.get_weights(),
                gathered=np.diff(marks),
            )
    strategy.close()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(Path(sys.argv[1]), int(sys.argv[2]))
