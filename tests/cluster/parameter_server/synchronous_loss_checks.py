"""What SyncReplicasStrategy promises of losses that are no means over rows: checks of three workers with two servers."""

from __future__ import annotations

import contextlib
import functools
import logging
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server.server_models import (
    CLASSES,
    LARGE_BYTES,
    LENGTH,
    WIDTH,
    WORDS,
    compiled,
    dense_model,
    numbers,
    word_model,
    words,
)
from tests.support.servers import wait_for_all

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
KERAS3 = hasattr(keras, "ops")


def masked_model(**arguments: Any) -> Any:
    """Word 0 is masked. Of the rows below, the workers have very different numbers of valid words."""
    return keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, WIDTH, mask_zero=True),
            keras.layers.Dense(CLASSES, **arguments),
        ]
    )


def masked_words(count: int) -> tuple:
    x, _ = words(count)
    x = np.where(np.arange(LENGTH) < np.linspace(1, LENGTH, 7).astype(int)[np.arange(count) % 7, None], x, 0)
    return x, np.random.default_rng(5).integers(0, CLASSES, (count, LENGTH))


def check_losses_divided_by_masks_and_weights_train_as_in_one_process(folder: Path) -> None:
    """The workers have 2, 2 and 3 rows of a batch, and all of them both rows of the last one."""
    entropy = functools.partial(keras.losses.SparseCategoricalCrossentropy, from_logits=True)
    cases = [
        ("mask", masked_model, masked_words, entropy(), False),
        ("ignored", dense_model, numbers, entropy(ignore_class=1), False),
    ]
    if KERAS3:
        cases.append(("weighted", dense_model, numbers, entropy(reduction="mean_with_sample_weight"), True))
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    for name, make, data, loss, is_weighted in cases:
        x, y = data(16)
        weights = {"sample_weight": np.linspace(0, 3, 16, dtype="float32")} if is_weighted else {}
        options = {"shuffle": False, "verbose": 0, "batch_size": 7, "epochs": 2, **weights}
        with strategy.scope():
            model = compiled(make(), keras.optimizers.SGD(0.3), loss)
        first = model.get_weights()
        wait_for_all(folder, f"{name} made", strategy.rank, strategy.size)
        with logged() as messages:
            logs = model.fit(x, y, **options).history
        assert not messages, messages
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            plain = compiled(make(), keras.optimizers.SGD(0.3), loss)
        plain.set_weights(first)
        expected = plain.fit(x, y, **options).history
        np.testing.assert_allclose(logs["accuracy"], expected["accuracy"], rtol=0, atol=1e-5, err_msg=name)
        for mine, alone in zip(model.get_weights(), plain.get_weights()):
            np.testing.assert_allclose(mine, alone, rtol=0, atol=1e-6, err_msg=name)
        wait_for_all(folder, f"{name} compared", strategy.rank, strategy.size)
    strategy.close()


def contrastive(labels: Any, logits: Any) -> tf.Tensor:
    rows = tf.math.l2_normalize(logits, axis=1)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.range(tf.shape(rows)[0]), tf.matmul(rows, rows, transpose_b=True)
    )


def own_mean(labels: Any, logits: Any) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(tf.reshape(labels, [-1]), tf.int64), logits)


def root(labels: Any, logits: Any) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(own_mean(labels, logits) ** 2))


def wide_model() -> Any:
    """Channels carry its weights."""
    layers = [keras.layers.Dense(LARGE_BYTES * 2), keras.layers.Dense(CLASSES)]
    return keras.Sequential([keras.layers.Input((8,)), *layers])


def check_losses_and_metrics_that_are_no_means_over_rows_are_warned_of_once(folder: Path) -> None:
    """An activity regularizer is divided by rows, and the loss of masked words by the valid words."""
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    regularized = functools.partial(masked_model, activity_regularizer="l2")
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    cases = (
        (regularized, masked_words, entropy, "accuracy", "is divided by the valid rows"),
        (dense_model, numbers, root, "accuracy", "does not return one number for each row"),
        (wide_model, numbers, contrastive, "accuracy", "depends on the other rows"),
        (dense_model, numbers, entropy, root, "Metric 'root' is given a number for each batch"),
        (word_model, words, own_mean, "accuracy", ""),
        (dense_model, numbers, entropy, "accuracy", ""),
        (updated_twice, numbers, None, None, "reads the old value"),
    )
    for number, (make, data, loss, metric, text) in enumerate(cases):
        with strategy.scope():
            model = make()
            model.compile(keras.optimizers.SGD(0.01), loss, metrics=metric and [metric])
        x, y = data(6)
        with logged() as messages:
            for rows in (6, 4):
                model.fit(x[:rows], y[:rows], batch_size=6, verbose=0)
        assert len(messages) == (1 if text and strategy.rank == 0 else 0), (text, messages, len(messages))
        assert all(text in each and "CollectiveAllReduceStrategy" in each for each in messages), messages
        wait_for_all(folder, f"warned {number}", strategy.rank, strategy.size)
    strategy.close()


def updated_twice() -> Any:
    """The second gradients of a step should be those of the weights after the first update, as for a GAN."""

    class UpdatedTwice(keras.Model):
        def train_step(self, data: tuple) -> dict:
            for _ in range(2):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(self(data[0]) ** 2)
                variables = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return {"loss": loss}

    model = dense_model()
    return UpdatedTwice(model.inputs, model.outputs)


@contextlib.contextmanager
def logged() -> Iterator[list]:
    """Yields the list of the warnings that this package logs."""
    messages: list = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tf_strategies").addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger("tf_strategies").removeHandler(handler)
