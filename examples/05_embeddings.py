"""Trains word vectors on three workers. Only the rows of the words in a batch are sent, each row once.

    tfs-run --workers 3 examples/05_embeddings.py

The model reads twenty words of Python's manual (`pydoc_data.topics` of the standard library) and predicts the
chapter they are from. The gradient of an embedding has one row for each word, and words such as "the" are
frequent: every worker adds up its rows of a word before it sends them. The chief prints a line for each
epoch, and then a table:

    workers                                   3
    words and vectors                         3,228 × 64
    test accuracy, of 31 chapters             0.51
    largest weight difference                 0
    rows per step, one for each word read     3,840
    rows per step, as sent                    1,507
    bytes per step, one row a word read       998,400
    bytes per step, as sent                   391,729

Rows and bytes count all workers. It takes about half a minute on two cores. With plain `python` it runs as
one worker, which sends nothing.
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


def gathered_bytes(strategy: tfs.CollectiveAllReduceStrategy) -> int:
    """The bytes of all workers' rows that were gathered so far."""
    entries = strategy.communication_stats().collectives
    return sum(entry.bytes for entry in entries if entry.kind == "all_gather")


def largest_difference(strategy: tfs.CollectiveAllReduceStrategy, model: keras.Model) -> float:
    """The largest difference of any weight between any two workers."""
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everyone = strategy.gather(tf.constant(weights[np.newaxis]), axis=0).numpy()
    return float((everyone.max(axis=0) - everyone.min(axis=0)).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=192, help="of all workers together")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)  # the same on all workers, so that they shuffle alike and split each batch
    pieces, labels, words, chapters = load()
    order = np.random.default_rng(1).permutation(len(pieces))
    train = order[: len(order) * 9 // 10 // arguments.batch_size * arguments.batch_size]
    test = order[len(train) :]

    strategy = tfs.CollectiveAllReduceStrategy()
    chief = strategy.rank == 0
    with strategy.scope():
        model = build_model(words, chapters)
    before = gathered_bytes(strategy)
    model.fit(
        pieces[train],
        labels[train],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if chief else 0,
    )
    steps = len(train) // arguments.batch_size * arguments.epochs
    sent = (gathered_bytes(strategy) - before) / steps
    _, accuracy = model.evaluate(pieces[test], labels[test], batch_size=arguments.batch_size, verbose=0)
    difference = largest_difference(strategy, model)

    if chief:
        read, row_bytes = arguments.batch_size * LENGTH, 4 * WIDTH + 4  # float32, and the word's number
        for name, value in (
            ("workers", strategy.size),
            ("words and vectors", f"{words:,} × {WIDTH}"),
            (f"test accuracy, of {chapters} chapters", f"{accuracy:.2f}"),
            ("largest weight difference", f"{difference:g}"),
            ("rows per step, one for each word read", f"{read:,}"),
            ("rows per step, as sent", f"{sent / row_bytes:,.0f}"),
            ("bytes per step, one row a word read", f"{read * row_bytes:,}"),
            ("bytes per step, as sent", f"{sent:,.0f}"),
        ):
            print(f"{name:<42}{value}")


if __name__ == "__main__":
    main()
