"""Losses of every kind: means, sums, scalars, several outputs, weights of classes and of rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.exactness.programs.registry import BATCH, FEATURES, STEPS, Trial, classifier, keras, program, rows

UNEVEN = BATCH * STEPS + 5


def _crossentropy(y, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(tf.reshape(y, [-1]), tf.int64), logits)


def mean_crossentropy(y, logits):
    return tf.reduce_mean(_crossentropy(y, logits))


def _fit(count=BATCH * STEPS, **more):
    x, y = rows(count)
    return {"x": x, "y": y, **more}


@program()
def mean_loss_sgd_momentum() -> Trial:
    x, y = rows(UNEVEN)
    return Trial(classifier(), {"x": x, "y": y}, evaluate={"x": x, "y": y})


@program()
def mean_loss_adam() -> Trial:
    return Trial(classifier(optimizer=keras.optimizers.Adam(0.01)), _fit(UNEVEN))


@program()
def scalar_loss() -> Trial:
    model = classifier(loss=mean_crossentropy, optimizer=keras.optimizers.Adam(0.01))
    return Trial(model, _fit(UNEVEN), evaluate=_fit(UNEVEN))


@program()
def scalar_loss_with_a_second_output_and_a_regularizer() -> Trial:
    inputs = keras.layers.Input((FEATURES,))
    hidden = keras.layers.Dense(8, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01))(inputs)
    outputs = [keras.layers.Dense(3, name="classes")(hidden), keras.layers.Dense(1, name="value")(hidden)]
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.01), [mean_crossentropy, "mse"], loss_weights=[1.0, 0.3])
    x, y = rows(UNEVEN)
    return Trial(model, {"x": x, "y": (y, x[:, :1])})


@program()
def sum_loss() -> Trial:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    return Trial(
        classifier(loss=loss, optimizer=keras.optimizers.SGD(0.01)), _fit(UNEVEN), evaluate=_fit(UNEVEN)
    )


@program()
def sum_loss_and_regularizer_adam() -> Trial:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    hidden = keras.layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.1))
    return Trial(classifier(hidden, loss=loss, optimizer=keras.optimizers.Adam(0.01)), _fit(UNEVEN))


@program(only="keras3")
def loss_that_is_not_reduced() -> Trial:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    return Trial(classifier(loss=loss, optimizer=keras.optimizers.SGD(0.01)), _fit(UNEVEN), logs=False)


@program()
def several_outputs_with_loss_weights() -> Trial:
    inputs = keras.layers.Input((FEATURES,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    outputs = [keras.layers.Dense(3, name="classes")(hidden), keras.layers.Dense(1, name="value")(hidden)]
    model = keras.Model(inputs, outputs)
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mse"]
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), losses, loss_weights=[1.0, 0.3])
    x, y = rows(UNEVEN)
    return Trial(model, {"x": x, "y": (y, x[:, :1])}, evaluate={"x": x, "y": (y, x[:, :1])})


@program()
def class_weights() -> Trial:
    return Trial(classifier(), _fit(class_weight={0: 1.0, 1: 3.0, 2: 0.5}))


@program()
def sample_weights() -> Trial:
    weights = np.random.default_rng(1).uniform(0, 2, UNEVEN).astype("float32")
    return Trial(classifier(), _fit(UNEVEN, sample_weight=weights))


@program(only="keras3")
def mean_with_sample_weight() -> Trial:
    weights = np.random.default_rng(1).uniform(0, 2, UNEVEN).astype("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    return Trial(classifier(loss=loss), _fit(UNEVEN, sample_weight=weights))


@program()
def ignored_class() -> Trial:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    x, y = rows(UNEVEN)
    y[np.random.default_rng(1).uniform(size=len(y)) < 0.4] = -1
    return Trial(classifier(loss=loss, metrics=[]), {"x": x, "y": y}, evaluate={"x": x, "y": y})


@program()
def huber_with_label_columns() -> Trial:
    x, _ = rows(UNEVEN)
    model = keras.Sequential(
        [keras.layers.Input((FEATURES,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.Huber(0.5),
        metrics=["mae", keras.metrics.RootMeanSquaredError()],
    )
    return Trial(model, {"x": x, "y": x[:, :2] ** 2})


@program()
def binary_with_auc_and_precision() -> Trial:
    x, y = rows(UNEVEN)
    model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(1, activation="sigmoid")])
    metrics = [keras.metrics.AUC(), keras.metrics.Precision(), keras.metrics.Recall()]
    model.compile(keras.optimizers.SGD(0.2, momentum=0.9), "binary_crossentropy", metrics=metrics)
    target = (y > 0).astype("float32")[:, None]
    return Trial(model, {"x": x, "y": target}, evaluate={"x": x, "y": target})


@program()
def regularizers_and_constraints() -> Trial:
    hidden = keras.layers.Dense(
        8,
        activation="relu",
        kernel_regularizer=keras.regularizers.L1L2(0.01, 0.02),
        bias_regularizer=keras.regularizers.L2(0.1),
        kernel_constraint=keras.constraints.MaxNorm(1.0),
    )
    return Trial(classifier(hidden), _fit(UNEVEN))


@program()
def activity_regularizer() -> Trial:
    hidden = keras.layers.Dense(8, activation="tanh", activity_regularizer=keras.regularizers.L2(0.1))
    return Trial(classifier(hidden), _fit(UNEVEN))
