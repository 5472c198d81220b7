"""Optimizers with options that look at the gradient or at the weights."""

from __future__ import annotations

import numpy as np

import tf_strategies as tfs
from tests.exactness.programs.losses import UNEVEN
from tests.exactness.programs.registry import BATCH, KERAS3, Trial, classifier, keras, program, rows
from tf_strategies.schedules import PolynomialDecay


def _with(optimizer) -> Trial:
    x, y = rows(UNEVEN)
    return Trial(classifier(optimizer=optimizer), {"x": x, "y": y})


@program()
def clipping_by_global_norm() -> Trial:
    return _with(keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1))


@program()
def clipping_by_norm_adam() -> Trial:
    return _with(keras.optimizers.Adam(0.01, clipnorm=0.05))


@program()
def clipping_by_value() -> Trial:
    return _with(keras.optimizers.SGD(0.1, clipvalue=0.02))


@program()
def adamw_with_weight_decay() -> Trial:
    return _with(keras.optimizers.AdamW(0.01, weight_decay=0.1))


@program()
def moving_average_of_weights() -> Trial:
    return _with(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=10))


@program()
def schedule_and_nesterov() -> Trial:
    rate = keras.optimizers.schedules.CosineDecay(0.2, 40)
    return _with(keras.optimizers.SGD(rate, momentum=0.9, nesterov=True))


@program()
def rmsprop() -> Trial:
    return _with(keras.optimizers.RMSprop(0.005, momentum=0.5, centered=True))


@program()
def ftrl_and_adagrad() -> Trial:
    return _with(keras.optimizers.Ftrl(0.05, l1_regularization_strength=0.001))


@program()
def gradient_accumulation() -> Trial:
    kind = keras.optimizers.SGD if KERAS3 else tfs.optimizers.SGD
    return _with(kind(0.1, momentum=0.9, gradient_accumulation_steps=4))


@program()
def lars_with_warmup() -> Trial:
    rate = tfs.schedules.LinearScalingWarmup(
        0.2, BATCH // 2, global_batch=BATCH, warmup_steps=10, after=lambda peak: PolynomialDecay(peak, 40)
    )
    return _with(tfs.optimizers.LARS(rate, nesterov=True, weight_decay=0.01, trust_coefficient=0.02))


@program()
def lamb_with_rows() -> Trial:
    words = np.random.default_rng(3).integers(0, 10, (UNEVEN, 4)).astype("int32")
    inputs = keras.layers.Input((4,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(10, 6)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tfs.optimizers.LAMB(0.01, weight_decay=0.1), loss)
    return Trial(model, {"x": words, "y": words[:, 0] % 3})
