"""Loops of one's own with `strategy.run`, whose convention is tf.distribute's: losses are parts of a sum over all replicas."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.exactness.programs.losses import UNEVEN
from tests.exactness.programs.registry import BATCH, Trial, classifier, keras, program, rows


def _loop(loss_of) -> Trial:
    model = classifier()
    strategy, optimizer = tf.distribute.get_strategy(), model.optimizer
    x, y = rows(UNEVEN)

    @tf.function
    def step(batch):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    def run() -> dict:
        dataset = strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        )
        return {"loss": [float(np.mean([step(batch) for batch in dataset]))]}

    return Trial(model, run=run)


@program()
def loop_with_losses_over_the_global_batch() -> Trial:
    def loss_of(y, logits):
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        return tf.nn.compute_average_loss(each, global_batch_size=BATCH)

    return _loop(loss_of)


@program(only="keras3")
def loop_with_a_loss_of_keras() -> Trial:
    return _loop(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
