"""A task of test_protected_servers.py: a server, or a worker that trains while it is asked to.

python -m tests.cluster.parameter_server.protected_worker FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.processes import wait_until

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

WIDTH = 300
MARK = np.frombuffer(b"A WEIGHT", "float32")  # 8 bytes that a network carries as they are
_SECONDS = 60


def main(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(transport="tcp"))
    with strategy.scope():
        weights = keras.initializers.Constant(np.tile(MARK, WIDTH * WIDTH // 2).reshape(WIDTH, WIDTH))
        model = keras.Sequential(
            [keras.layers.InputLayer((WIDTH,)), keras.layers.Dense(WIDTH, kernel_initializer=weights)]
        )
        model.compile(keras.optimizers.SGD(0.0), "mse")
    zeros = np.zeros((8, WIDTH), "float32")

    def train() -> None:
        model.fit(zeros, zeros, batch_size=4, epochs=2, verbose=0)

    train()
    (channel,) = strategy._servers.transport._channels.values()
    (folder / "trained").write_text(json.dumps(channel.stats()))
    wait_until((folder / "go on").exists, _SECONDS, "the test")
    train()
    (folder / "trained again").touch()
    wait_until((folder / "server is lost").exists, _SECONDS, "the test")
    train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
