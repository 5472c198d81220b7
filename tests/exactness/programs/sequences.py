"""Sequences of uneven lengths: masks, weights of time steps, recurrent layers, attention, embeddings."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.exactness.programs.registry import BATCH, CLASSES, STEPS, Trial, keras, program

WORDS, LENGTH, UNEVEN = 20, 7, BATCH * STEPS + 5


def texts(count: int = UNEVEN) -> tuple:
    """Returns words [count, LENGTH] int32, 0 behind the end of each text, and classes [count, LENGTH] int64 of the words."""
    random = np.random.default_rng(5)
    words = random.integers(1, WORDS, (count, LENGTH)).astype("int32")
    words[np.arange(LENGTH) >= random.integers(1, LENGTH + 1, (count, 1))] = 0
    return words, (words % CLASSES).astype("int64")


def _tagger(*layers, optimizer=None, mask=True, **compiled):
    model = keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, 4, mask_zero=mask),
            *layers,
            keras.layers.Dense(CLASSES),
        ]
    )
    compiled.setdefault("loss", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.compile(optimizer or keras.optimizers.SGD(0.2, momentum=0.9), **compiled)
    return model


@program()
def masked_words() -> Trial:
    words, classes = texts()
    return Trial(_tagger(), {"x": words, "y": classes}, evaluate={"x": words, "y": classes})


@program(reference="masked_words_without_sparse_gradients_adam")
def masked_words_adam() -> Trial:
    words, classes = texts()
    return Trial(_tagger(optimizer=keras.optimizers.Adam(0.01)), {"x": words, "y": classes})


@program()
def masked_words_without_sparse_gradients_adam() -> Trial:
    """The same model with a dense gradient of its table, which merges what stands in several rows."""

    class Table(keras.layers.Embedding):
        def call(self, inputs):
            table = tf.convert_to_tensor(self.embeddings)
            return tf.matmul(tf.one_hot(inputs, WORDS), table)

    words, classes = texts()
    model = keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            Table(WORDS, 4, mask_zero=True),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return Trial(model, {"x": words, "y": classes})


@program()
def weights_of_time_steps() -> Trial:
    words, classes = texts()
    weights = np.random.default_rng(2).uniform(0, 2, words.shape).astype("float32")
    return Trial(_tagger(mask=False), {"x": words, "y": classes, "sample_weight": weights})


@program()
def masks_and_weights_of_time_steps() -> Trial:
    words, classes = texts()
    weights = np.random.default_rng(2).uniform(0, 2, words.shape).astype("float32")
    return Trial(_tagger(), {"x": words, "y": classes, "sample_weight": weights})


@program()
def lstm_with_masks() -> Trial:
    words, classes = texts()
    return Trial(_tagger(keras.layers.LSTM(4, return_sequences=True)), {"x": words, "y": classes})


@program()
def lstm_with_one_label() -> Trial:
    words, classes = texts()
    return Trial(_tagger(keras.layers.LSTM(4)), {"x": words, "y": classes[:, 0]})


@program()
def bidirectional_gru_with_masks() -> Trial:
    words, classes = texts()
    layer = keras.layers.Bidirectional(keras.layers.GRU(3, return_sequences=True))
    return Trial(_tagger(layer, optimizer=keras.optimizers.SGD(0.1)), {"x": words, "y": classes})


@program()
def transformer() -> Trial:
    words, classes = texts()
    inputs = keras.layers.Input((LENGTH,), dtype="int32")
    embedded = keras.layers.Embedding(WORDS, 8, mask_zero=True)(inputs)
    positions = keras.layers.Embedding(LENGTH, 8)(tf.range(LENGTH))
    hidden = embedded + positions
    attended = keras.layers.MultiHeadAttention(2, 4)(hidden, hidden)
    hidden = keras.layers.LayerNormalization()(hidden + attended)
    hidden = keras.layers.LayerNormalization()(hidden + keras.layers.Dense(8, activation="relu")(hidden))
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(hidden))
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return Trial(model, {"x": words, "y": classes})


@program()
def embedding_and_convolution() -> Trial:
    words, classes = texts()
    layers = [
        keras.layers.Conv1D(4, 3, padding="same", activation="relu"),
        keras.layers.GlobalAveragePooling1D(),
    ]
    return Trial(_tagger(*layers, mask=False), {"x": words, "y": classes[:, 0]})
