"""A step that clips gradients which are not added up yet is warned of; two replicas of one process."""

from __future__ import annotations

import logging
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tf_strategies.keras import postponed_gradients  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
KERAS3 = hasattr(keras, "ops")
WARNING = "are not added up over the replicas yet"


class Model(keras.Model):
    def __init__(self, change: Any, log: Any = None) -> None:
        super().__init__()
        self.dense, self.change, self.log = keras.layers.Dense(2), change, log

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.dense(x)

    def train_step(self, data: Any) -> dict:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(self.change(gradients), self.trainable_variables))
        return {"loss": loss, **({"norm": self.log(gradients)} if self.log else {})}


def same(gradients: list) -> list:
    return gradients


def clipped(gradients: list) -> list:
    return tf.clip_by_global_norm(gradients, 0.01)[0]


def clipped_by_value(gradients: list) -> list:
    return [tf.clip_by_value(each, -0.01, 0.01) for each in gradients]


def scaled(gradients: list) -> list:
    return [tf.identity(each) * 0.5 + 0.1 * each / 3.0 for each in gradients]


def accumulating(**options: Any) -> Any:
    return tfs.optimizers.SGD(0.1, gradient_accumulation_steps=2, **options)


@pytest.mark.parametrize(
    ("change", "log", "optimizer", "compression", "warns"),
    [
        (same, None, accumulating, None, ""),
        (scaled, None, accumulating, None, ""),
        (clipped, None, accumulating, None, "the gradients that it applies"),
        (clipped_by_value, None, accumulating, None, "the gradients that it applies"),
        (same, tf.linalg.global_norm, accumulating, None, "a number that it returns"),
        (clipped, tf.linalg.global_norm, lambda: keras.optimizers.SGD(0.1), None, ""),
        (
            clipped,
            None,
            lambda: keras.optimizers.SGD(0.1),
            tfs.compression.Half(),
            "the gradients that it applies",
        ),
        (same, None, lambda: keras.optimizers.Adam(0.1), tfs.compression.TopK(0.5), ""),
    ],
)
def test_gradients_that_are_changed_before_they_are_added_up(
    change: Any, log: Any, optimizer: Any, compression: Any, warns: str, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(postponed_gradients, "_warned", set())
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"], compression=compression)
    with strategy.scope():
        model = Model(change, log)
        model.compile(optimizer())
    with caplog.at_level(logging.WARNING):
        model.fit(tf.ones([16, 3]), tf.ones([16, 2]), batch_size=4, verbose=0)
    assert (WARNING in caplog.text) == bool(warns), caplog.text
    assert not warns or f"A step computes {warns} from its gradients by" in caplog.text


def test_a_loss_scale_is_no_change(caplog, monkeypatch) -> None:
    monkeypatch.setattr(postponed_gradients, "_warned", set())
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"], compression=tfs.compression.Half())
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(2)])
        scaling = (keras.optimizers if KERAS3 else keras.mixed_precision).LossScaleOptimizer
        model.compile(scaling(keras.optimizers.SGD(0.1, global_clipnorm=1.0)), "mse")
    with caplog.at_level(logging.WARNING):
        model.fit(tf.ones([16, 3]), tf.ones([16, 2]), batch_size=4, verbose=0)
    assert WARNING not in caplog.text
