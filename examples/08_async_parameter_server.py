"""Trains word vectors on two parameter servers, with two workers that do not wait for each other.

    tfs-run --workers 2 --ps 2 examples/08_async_parameter_server.py

The model reads twenty words of Python's manual (`pydoc_data.topics` of the standard library) and predicts the
chapter they are from. Its table of word vectors is cut into two parts, one on each server. A worker fetches
the rows of the words in its batch, and sends their gradients. Each worker gets every second batch, and trains
at its own pace. The servers count the updates by other workers between the time when a worker reads the
weights and its own update. The chief prints a line for each epoch, and then a table:

    workers, servers                          2, 2
    word vectors on each server               1,614, 1,614
    updates applied, counted by the servers   216
    updates, as the optimizer counts them     216
    staleness, mean and maximum               0.21, 4
    test accuracy, of 30 chapters             0.45

With plain `python` it runs as one process, which is both worker and server.
"""

from __future__ import annotations

import argparse
import collections
import re
from pydoc_data.topics import topics

import keras
import numpy as np
import tensorflow as tf

import tf_strategies as tfs

LENGTH, WIDTH = 20, 64
LARGE_BYTES = 64 << 10  # of a part of a variable: the table has more, all others less


def load() -> tuple:
    """Pieces of LENGTH words, the chapter of each, the size of the vocabulary and the number of chapters."""
    chapters = [re.findall(r"[a-z_]+", text.lower()) for text in sorted(set(topics.values()))]
    chapters = [words for words in chapters if len(words) >= 20 * LENGTH]
    counts = collections.Counter(word for words in chapters for word in words)
    number = {word: index for index, (word, _) in enumerate(counts.most_common())}
    pieces, labels = [], []
    for label, words in enumerate(chapters):
        for start in range(0, len(words) - LENGTH + 1, LENGTH):
            pieces.append([number[word] for word in words[start : start + LENGTH]])
            labels.append(label)
    return np.array(pieces, "int32"), np.array(labels, "int32"), len(number), len(chapters)


def build_model(words: int, chapters: int) -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(words, WIDTH),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(chapters),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=96, help="of one worker")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)  # the same on all workers, so that their batches are from one order
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(LARGE_BYTES, max_shards=2)
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(partitioner=partitioner))
    # A server never comes here: it serves, and ends when the workers are done.

    chief = strategy.rank == 0
    pieces, labels, words, chapters = load()
    order = np.random.default_rng(1).permutation(len(pieces))
    train, test = order[: len(order) * 9 // 10], order[len(order) * 9 // 10 :]
    with strategy.scope():
        model = build_model(words, chapters)
    model.fit(
        pieces[train],
        labels[train],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if chief else 0,
    )
    _, accuracy = model.evaluate(pieces[test], labels[test], verbose=0)
    staleness = strategy.staleness_stats()

    if chief:
        table = model.layers[0].embeddings  # Keras 3 keeps a tf.Variable in a variable of its own
        rows = ", ".join(
            f"{part.rows:,}" for part in (table if hasattr(table, "parts") else table.value).parts
        )
        for name, value in (
            ("workers, servers", f"{strategy.size}, {len(strategy.extended.parameter_devices)}"),
            ("word vectors on each server", rows),
            ("updates applied, counted by the servers", f"{staleness.count:,}"),
            ("updates, as the optimizer counts them", f"{int(model.optimizer.iterations):,}"),
            ("staleness, mean and maximum", f"{staleness.mean:.2f}, {staleness.maximum}"),
            (f"test accuracy, of {chapters} chapters", f"{accuracy:.2f}"),
        ):
            print(f"{name:<42}{value}")


if __name__ == "__main__":
    main()
