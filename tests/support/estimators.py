"""Estimators of tests, of the kinds that people write, on data that can be learned; TensorFlow 2.15 is the last that has them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import numpy as np
import pytest
import tensorflow as tf

__all__ = [
    "BATCH",
    "FEATURES",
    "MAKERS",
    "custom",
    "exported",
    "input_fn",
    "joint_input_fn",
    "needs_estimator",
    "needs_no_estimator",
    "rows",
    "whole_input_fn",
]

BATCH = 16
FEATURES = 4
_CATEGORIES = 20

_HAS_ESTIMATOR = hasattr(tf, "estimator")
needs_estimator = pytest.mark.skipif(
    not _HAS_ESTIMATOR,
    reason=f"TensorFlow {tf.__version__} has no Estimator; 2.15 was the last release with it",
)
needs_no_estimator = pytest.mark.skipif(_HAS_ESTIMATOR, reason=f"TensorFlow {tf.__version__} has Estimator")


def rows(count: int = 2048, seed: int = 0) -> Dict[str, np.ndarray]:
    """`x` [count, FEATURES] float32, `category` [count] int64, `label` [count] int64 of 0 and 1, which follow from them."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, FEATURES)).astype(np.float32)
    category = random.integers(0, _CATEGORIES, size=count)
    label = (x @ np.array([1.0, -2.0, 0.5, 1.5]) + category % 3 - 1 > 0).astype(np.int64)
    return {"x": x, "category": category, "label": label}


def input_fn(only: Optional[str] = None) -> Callable:
    """An `input_fn` that takes a context, and deals rows out; features are a dictionary, or only one of them."""

    def make(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        data = rows()
        label = data.pop("label")
        dataset = tf.data.Dataset.from_tensor_slices((data[only] if only else data, label))
        if input_context is not None:
            dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        return dataset.repeat().batch(BATCH)

    return make


def whole_input_fn() -> tf.data.Dataset:
    """All rows for every worker: it takes no context."""
    data = rows()
    label = data.pop("label")
    return tf.data.Dataset.from_tensor_slices((data, label)).shuffle(len(label)).repeat().batch(BATCH)


def joint_input_fn(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
    """The same joint batches of 2 * BATCH rows `x` for any number of workers that share them, up to that many."""
    pipelines = 1 if input_context is None else input_context.num_input_pipelines
    mine = 0 if input_context is None else input_context.input_pipeline_id
    data = rows()
    dataset = tf.data.Dataset.from_tensor_slices((data["x"], data["label"])).shard(pipelines, mine)
    return dataset.repeat().batch(2 * BATCH // pipelines)


def custom(config: Any, optimizer: str = "adam", width: int = 16, normalize: bool = True) -> Any:
    """A `model_fn` of its own; the optimizer is "adam" or "momentum" of tf.compat.v1, "keras", or "none": by hand."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        v1 = tf.compat.v1
        hidden = v1.layers.dense(features, width, activation=tf.nn.relu, name="hidden")
        if normalize:
            hidden = v1.layers.batch_normalization(hidden, training=mode == "train", name="norm")
        logits = v1.layers.dense(hidden, 2, name="logits") + tf.Variable(tf.zeros([2]), name="shift")
        if mode == "infer":
            return tf.estimator.EstimatorSpec(mode, predictions=logits)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each)
        accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
        train_op = scaffold = None
        if mode == "train":
            scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: print("initialized", flush=True))
            v1.summary.scalar("largest_logit", tf.reduce_max(logits))
            with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
                train_op = _train_op(optimizer, loss)
        return tf.estimator.EstimatorSpec(
            mode,
            loss=loss,
            train_op=train_op,
            scaffold=scaffold,
            eval_metric_ops={"accuracy": accuracy},
        )

    return tf.estimator.Estimator(model_fn, config=config)


def _train_op(optimizer: str, loss: tf.Tensor) -> Any:
    step = tf.compat.v1.train.get_or_create_global_step()
    if optimizer == "keras":
        # TensorFlow scales the loss for its own optimizers alone: those of Keras get the sum over replicas.
        made = tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9)
        made.iterations = step
        loss = loss / tf.distribute.get_strategy().num_replicas_in_sync
        return tf.group(made.get_updates(loss, tf.compat.v1.trainable_variables()))
    if optimizer == "none":
        (weight, *_) = tf.compat.v1.trainable_variables()
        return tf.group(
            weight.assign(weight - 0.1 * tf.gradients(loss, [weight])[0]).op, step.assign_add(1).op
        )
    if optimizer == "momentum":
        return tf.compat.v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step)
    return tf.compat.v1.train.AdamOptimizer(0.02).minimize(loss, step)


def _columns() -> Any:
    columns = tf.feature_column
    category = columns.categorical_column_with_identity("category", _CATEGORIES)
    return columns.numeric_column("x", (FEATURES,)), category, columns.embedding_column(category, 4)


def _deep(config: Any) -> Any:
    numeric, _, embedded = _columns()
    optimizer = tf.keras.optimizers.legacy.Adam(0.02)
    return tf.estimator.DNNClassifier([16], [numeric, embedded], optimizer=optimizer, config=config)


def _linear(config: Any) -> Any:
    numeric, category, _ = _columns()
    return tf.estimator.LinearClassifier([numeric, category], config=config)


def exported(config: Any) -> Any:
    """A canned one that needs `x` alone to predict."""
    numeric, _, _ = _columns()
    return tf.estimator.LinearClassifier([numeric], config=config)


def _keras(config: Any) -> Any:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Dense(16, activation="relu", input_shape=(FEATURES,)),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.legacy.Adam(0.02), loss, metrics=["accuracy"])
    return tf.keras.estimator.model_to_estimator(model, config=config)


MAKERS: Dict[str, Callable[[Any], Any]] = {"deep": _deep, "linear": _linear, "keras": _keras}
