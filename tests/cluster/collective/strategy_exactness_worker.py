"""One worker of the exactness test: trains with each number of local replicas on each Keras that is named; keeps the weights.

python -m tests.cluster.collective.strategy_exactness_worker OUTPUT_FOLDER REPLICAS,... KERAS...
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import numpy as np

BATCH, STEPS, FEATURES, HIDDEN, CLASSES = 120, 50, 6, 8, 3
RATE, MOMENTUM = 0.1, 0.9
ALGORITHMS = {1: "binary_blocks", 2: "auto"}  # by local replicas


def data() -> tuple:
    """The rows of all steps: x [STEPS * BATCH, FEATURES], y [STEPS * BATCH]."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((STEPS * BATCH, FEATURES)).astype("float32")
    return x, (np.abs(x).argmax(axis=1) % CLASSES).astype("int64")


def main(folder: Path, replicas: list, modules: list) -> None:
    import tensorflow as tf

    import tf_strategies as tfs

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    x, y = data()
    for local in replicas:
        strategy = tfs.CollectiveAllReduceStrategy(
            devices=[f"CPU:{index}" for index in range(local)],
            communication_options=tfs.CommunicationOptions(algorithm=ALGORITHMS[local]),
        )
        for module in modules:
            keras = importlib.import_module(module)
            keras.utils.set_random_seed(100 + strategy.rank)
            with strategy.scope():
                model = keras.Sequential(
                    [
                        keras.layers.Input((FEATURES,)),
                        keras.layers.Dense(HIDDEN, activation="tanh", bias_initializer="random_normal"),
                        keras.layers.Dense(CLASSES),
                    ]
                )
                model.compile(
                    keras.optimizers.SGD(RATE, momentum=MOMENTUM),
                    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                    metrics=["accuracy"],
                )
            first = model.get_weights()
            history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history
            joint = {}
            if local == 2:  # with one, other tests look at these
                joint["evaluated"] = model.evaluate(x, y, batch_size=BATCH, verbose=0)
                joint["predicted"] = model.predict(x[: 5 * BATCH], batch_size=BATCH, verbose=0)
            np.savez(
                folder / f"{module}-{local}-{strategy.rank}.npz",
                *first,
                *model.get_weights(),
                logs=[history["loss"][0], history["accuracy"][0]],
                algorithms=list(strategy.communication_stats().algorithms),
                **joint,
            )
        strategy.close()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(Path(sys.argv[1]), [int(each) for each in sys.argv[2].split(",")], sys.argv[3:])
