"""Ready-made models and tools around Keras: keras.applications, keras_hub, keras_tuner."""

from __future__ import annotations

import contextlib
import tempfile

import numpy as np
import tensorflow as tf

from tests.exactness.programs.registry import (
    BATCH,
    CLASSES,
    STEPS,
    Trial,
    classifier,
    keras,
    program,
    rows,
)

_FEW = 5 * BATCH + 5


@program(tolerance=5e-5, local_replicas=False)  # 150 layers magnify the rounding of float32
def mobilenet_v2_fine_tuned() -> Trial:
    """A new head on a frozen network first, then all of it but the batch normalization."""
    images = np.random.default_rng(8).standard_normal((_FEW, 32, 32, 3)).astype("float32")
    labels = rows(_FEW)[1]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    base = keras.applications.MobileNetV2(
        (32, 32, 3), alpha=0.35, include_top=False, weights=None, pooling="avg"
    )
    base.trainable = False
    of_batches = [layer for layer in base.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for (
        layer
    ) in of_batches:  # otherwise the outputs of 52 such layers are 1e-10, and Adam's steps are rounding
        layer.moving_variance.assign(np.full(layer.moving_variance.shape, 0.4, "float32"))
    inputs = keras.layers.Input((32, 32, 3))
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(base(inputs, training=False)))
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    scope = tf.distribute.get_strategy().scope

    def run() -> dict:
        fit = {"x": images, "y": labels, "batch_size": BATCH, "shuffle": False, "verbose": 0}
        head = model.fit(**fit)
        with scope():
            base.trainable = True
            for layer in of_batches:
                layer.trainable = False
            model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"])
        tuned = model.fit(**fit)
        return {
            **{f"head_{key}": value for key, value in head.history.items()},
            **{f"tuned_{key}": value for key, value in tuned.history.items()},
        }

    return Trial(model, run=run)


@program(needs="keras_hub", only="keras3")
def keras_hub_backbone() -> Trial:
    """In float64: layer normalization of small embeddings magnifies the rounding of float32 to 3e-5."""
    import keras_hub

    random = np.random.default_rng(9)
    length = 8
    lengths = random.integers(2, length + 1, (BATCH * STEPS + 5, 1))
    mask = (np.arange(length) < lengths).astype("int32")
    words = random.integers(1, 50, mask.shape).astype("int32") * mask
    keras.backend.set_floatx("float64")
    try:
        backbone = keras_hub.models.BertBackbone(
            vocabulary_size=50,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
            max_sequence_length=length,
            dropout=0.0,
        )
        model = keras.Model(backbone.input, keras.layers.Dense(CLASSES)(backbone.output["pooled_output"]))
        model.compile(
            keras.optimizers.SGD(0.05),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    finally:
        keras.backend.set_floatx("float32")
    x = {"token_ids": words, "segment_ids": np.zeros_like(words), "padding_mask": mask}
    return Trial(model, {"x": x, "y": words[:, 0] % CLASSES})


@program(needs="keras_tuner", only="keras3")
def keras_tuner_search() -> Trial:
    """A search, then a training with the best choices; each worker keeps the search in a folder of its own."""
    import keras_tuner

    strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    x, y = rows(_FEW)

    def build(choices):
        return classifier(
            keras.layers.Dense(choices.Int("units", 4, 8), activation="tanh"),
            optimizer=keras.optimizers.SGD(choices.Float("rate", 0.01, 0.1)),
        )

    trial = Trial(None)

    def run() -> dict:
        tuner = keras_tuner.RandomSearch(
            build,
            keras_tuner.Objective("loss", "min"),
            max_trials=2,
            seed=11,
            directory=tempfile.mkdtemp(prefix="search-"),
            distribution_strategy=strategy,
        )
        fit = {"x": x, "y": y, "epochs": 2, "batch_size": BATCH, "shuffle": False, "verbose": 0}
        tuner.search(**fit)
        with strategy.scope() if strategy else contextlib.nullcontext():
            trial.model = build(tuner.get_best_hyperparameters()[0])
        history = trial.model.fit(**fit).history
        return {"scores": [each.score for each in tuner.oracle.get_best_trials(2)], **history}

    trial.run = run
    return trial
