"""Ways to run a training: modes of `compile`, several fits, frozen layers, preprocessing, precision, batches one by one."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.exactness.programs.losses import UNEVEN
from tests.exactness.programs.registry import (
    BATCH,
    CLASSES,
    FEATURES,
    STEPS,
    Trial,
    classifier,
    keras,
    program,
    rows,
)


def _fit(count: int = UNEVEN, **more) -> dict:
    x, y = rows(count)
    return {"x": x, "y": y, **more}


@program()
def several_steps_per_execution() -> Trial:
    return Trial(classifier(steps_per_execution=7), _fit())


@program()
def running_eagerly() -> Trial:
    return Trial(classifier(run_eagerly=True), _fit(5 * BATCH + 5))


@program()
def two_fits_with_compile_between() -> Trial:
    model = classifier()

    def run() -> dict:
        first = model.fit(**_fit(), batch_size=BATCH, shuffle=False, verbose=0)
        with model.distribute_strategy.scope():
            model.compile(keras.optimizers.Adam(0.01), model.loss, metrics=["accuracy"])
        second = model.fit(**_fit(), batch_size=BATCH, shuffle=False, verbose=0)
        return {
            f"{key}_{i}": value
            for i, each in enumerate((first, second))
            for key, value in each.history.items()
        }

    return Trial(model, run=run)


@program()
def transfer_learning_with_frozen_layers() -> Trial:
    frozen = keras.layers.Dense(8, activation="tanh", trainable=False)
    return Trial(classifier(frozen, keras.layers.Dense(4, activation="relu")), _fit())


@program()
def normalization_layer_and_resizing() -> Trial:
    x, _ = rows(UNEVEN)
    layer = keras.layers.Normalization()
    layer.adapt(x)
    return Trial(classifier(layer, keras.layers.Dense(4)), _fit())


@program()
def text_vectorization() -> Trial:
    words = ["red", "green", "blue", "black", "white"]
    random = np.random.default_rng(4)
    lines = [" ".join(words[i] for i in random.integers(0, 5, 3)) for _ in range(UNEVEN)]
    layer = keras.layers.TextVectorization(output_sequence_length=3)
    layer.adapt(lines)
    numbers = np.asarray(layer(tf.constant(lines)))
    model = keras.Sequential(
        [
            keras.layers.Input((3,), dtype="int64"),
            keras.layers.Embedding(10, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return Trial(model, {"x": numbers, "y": numbers[:, 0] % CLASSES})


@program()
def synchronized_batch_normalization() -> Trial:
    return Trial(
        classifier(keras.layers.Dense(8), keras.layers.BatchNormalization(synchronized=True)), _fit()
    )


@program()
def layer_and_group_normalization() -> Trial:
    hidden = [keras.layers.Dense(8), keras.layers.LayerNormalization(), keras.layers.UnitNormalization()]
    return Trial(classifier(*hidden), _fit())


@program()
def batches_one_by_one() -> Trial:
    model = classifier()
    x, y = rows(UNEVEN)

    def run() -> dict:
        losses = []
        for start in range(0, UNEVEN, BATCH):
            batch = slice(start, start + BATCH)
            losses.append(float(np.ravel(model.train_on_batch(x[batch], y[batch]))[0]))
        return {"loss": losses[-1:], "tested": [float(np.ravel(model.test_on_batch(x[:17], y[:17]))[0])]}

    return Trial(model, run=run)


@program()
def batches_one_by_one_of_a_model_with_two_inputs() -> Trial:
    inputs = [keras.layers.Input((FEATURES,)), keras.layers.Input((FEATURES,))]
    outputs = keras.layers.Dense(CLASSES)(keras.layers.Concatenate()(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = rows(5 * BATCH + 5)

    def run() -> dict:
        for start in range(0, len(x), BATCH):
            batch = slice(start, start + BATCH)
            loss = model.train_on_batch([x[batch], x[batch] ** 2], y[batch])
        return {"loss": [float(np.ravel(loss)[0])]}

    return Trial(model, run=run)


@program()
def dataset_with_steps_per_epoch() -> Trial:
    x, y = rows()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).repeat()
    return Trial(classifier(), {"x": dataset, "steps_per_epoch": STEPS // 2, "epochs": 2})


@program(tolerance=0.05)
def mixed_bfloat16() -> Trial:
    return Trial(_in_half_precision("mixed_bfloat16"), _fit(), logs=False)


@program(tolerance=0.05)
def mixed_float16_with_loss_scale() -> Trial:
    return Trial(_in_half_precision("mixed_float16"), _fit(), logs=False)


def _in_half_precision(policy: str):
    keras.mixed_precision.set_global_policy(policy)
    try:
        return classifier()
    finally:
        keras.mixed_precision.set_global_policy("float32")


@program(local_replicas=False)
def convolutions() -> Trial:
    images = np.random.default_rng(6).standard_normal((UNEVEN, 6, 6, 1)).astype("float32")
    model = keras.Sequential(
        [
            keras.layers.Input((6, 6, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.DepthwiseConv2D(3),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return Trial(model, {"x": images, "y": rows(UNEVEN)[1]})


@program()
def wide_and_deep_with_two_inputs() -> Trial:
    wide, deep = keras.layers.Input((FEATURES,)), keras.layers.Input((FEATURES,))
    hidden = keras.layers.Dense(8, activation="relu")(deep)
    outputs = keras.layers.Dense(CLASSES)(keras.layers.Concatenate()([wide, hidden]))
    model = keras.Model([wide, deep], outputs)
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = rows(UNEVEN)
    return Trial(model, {"x": [x, x**2], "y": y})
