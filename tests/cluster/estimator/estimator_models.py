"""What the workers of test_estimator_collective.py train: rows, input functions, model functions."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import numpy as np
import tensorflow as tf

BATCH, STEPS, FEATURES = 24, 8, 4


def rows() -> tuple:
    """The rows of all steps: x [STEPS * BATCH, FEATURES], y [STEPS * BATCH, 1]."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((STEPS * BATCH, FEATURES)).astype("float32")
    return x, (x.sum(axis=1, keepdims=True) + 0.5 * x[:, :1] ** 2).astype("float32")


def sharded_input(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
    """Of each joint batch the part of one of the pipelines, as batches for each replica, of unknown size."""
    context = tf.distribute.InputContext() if input_context is None else input_context
    pipelines, mine = context.num_input_pipelines, context.input_pipeline_id
    parts = [
        array.reshape(STEPS, pipelines, BATCH // pipelines, -1)[:, mine].reshape(-1, array.shape[1])
        for array in rows()
    ]
    return tf.data.Dataset.from_tensor_slices(tuple(parts)).batch(BATCH // context.num_replicas_in_sync)


def dense(units: int, seed: int, **settings: Any) -> tf.keras.layers.Layer:
    return tf.keras.layers.Dense(
        units, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=seed), **settings
    )


def model_fn(features: Any, labels: Any, mode: str, params: dict) -> tf.estimator.EstimatorSpec:
    """Two dense layers with batch normalization between them.

    Args:
        params: "optimizer": "v1" or "keras"; "normalization": by the moments "of all" replicas or "of each".
    """
    hidden = dense(5, 1, activation="tanh")(features)
    how = params.get("normalization", "of all")
    normalization = tf.keras.layers.BatchNormalization(synchronized=how == "of all", momentum=0.8)
    predicted = dense(1, 2)(normalization(hidden, training=mode == "train"))
    predicted += tf.Variable(tf.zeros([1]), name="shift")
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions={"y": predicted})
    squares = tf.reduce_mean((predicted - labels) ** 2)
    if mode == "eval":
        error = tf.compat.v1.metrics.mean_absolute_error(labels, predicted)
        return tf.estimator.EstimatorSpec(mode, loss=squares, eval_metric_ops={"error": error})
    step = tf.compat.v1.train.get_global_step()
    if params.get("optimizer") == "keras":
        # TensorFlow scales the loss for its v1 optimizers alone.
        squares = squares / tf.distribute.get_strategy().num_replicas_in_sync
        optimizer = tf.keras.optimizers.legacy.Adam(0.01)
        optimizer.iterations = step
        trained = tf.compat.v1.trainable_variables()
        update = optimizer.get_updates(squares, trained)[0]
        update = tf.group(update, *normalization.updates)
    else:
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.02, 0.9)
        with tf.control_dependencies(normalization.updates):
            update = optimizer.minimize(squares, step)
    scaffold = tf.compat.v1.train.Scaffold(
        saver=tf.compat.v1.train.Saver(max_to_keep=3, defer_build=True) if params.get("saver") else None
    )
    return tf.estimator.EstimatorSpec(
        mode,
        loss=squares,
        train_op=update,
        scaffold=scaffold,
        training_chief_hooks=params.get("chief_hooks", []),
    )


class Losses(tf.estimator.SessionRunHook):
    """Keeps the loss that Estimator reports, and the global step after, of every step."""

    def __init__(self, told: Optional[Callable[[int], None]] = None) -> None:
        self.losses: List[float] = []
        self.steps: List[int] = []
        self._told = told

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        return tf.estimator.SessionRunArgs(
            [tf.compat.v1.get_collection("losses")[-1], tf.compat.v1.train.get_global_step()]
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        loss, _ = run_values.results
        self.losses.append(float(loss))
        self.steps.append(int(run_context.session.run(tf.compat.v1.train.get_global_step())))
        if self._told is not None:
            self._told(self.steps[-1])


class Weights(tf.estimator.SessionRunHook):
    """Keeps the values at the end, by name, of all variables but those whose sum over workers counts."""

    def begin(self) -> None:
        self._reads = {
            variable.op.name: getattr(variable, "values", [variable])[0].value()
            for variable in tf.compat.v1.global_variables()
            if variable.aggregation != tf.VariableAggregation.SUM
        }

    def end(self, session: Any) -> None:
        self.values = session.run(self._reads)
