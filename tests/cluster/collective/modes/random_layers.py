"""Layers that draw numbers: others on each replica, the same in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.cluster.collective.modes.models import KERAS3, keras
from tests.support.replicas import require_equal_everywhere


def check_random_layers_differ_on_every_replica(strategy: Any) -> None:
    ones = tf.ones([8, 4, 4, 1]) * tf.reshape(tf.range(16.0), [4, 4, 1])

    def drawn(in_graph: bool) -> list:
        keras.utils.set_random_seed(5)
        with strategy.scope():
            layers = [
                keras.layers.Dropout(0.5),
                keras.layers.Dropout(0.5, seed=3),
                keras.layers.GaussianNoise(1.0),
                keras.layers.RandomFlip(seed=4),
            ]

        def once() -> Any:
            return strategy.run(lambda: [layer(ones, training=True) for layer in layers])

        step = tf.function(once) if in_graph else once
        step()
        outputs = [strategy.gather(output, axis=0).numpy() for output in step()]
        if KERAS3:
            require_equal_everywhere(strategy, [state for layer in layers for state in layer.variables])
        return [np.split(output, strategy.num_replicas_in_sync) for output in outputs]

    for in_graph in (True, False):
        first, again = drawn(in_graph), drawn(in_graph)
        for parts, same in zip(first, again):
            np.testing.assert_array_equal(parts, same)
            for number, part in enumerate(parts):
                for other in parts[:number]:
                    assert (part != other).any()
