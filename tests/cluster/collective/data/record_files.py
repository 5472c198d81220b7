"""Files of numbered rows."""

from __future__ import annotations

from pathlib import Path
from typing import List

import numpy as np
import tensorflow as tf

from tests.cluster.collective.data.numbered_rows import FEATURES, rows

Dataset = tf.data.Dataset


def record_files(strategy, folder, name: str, lengths: List[int]) -> tuple:
    """TFRecord files of so many rows each, written by the chief: their names and their (x, y)."""
    starts = np.cumsum([0, *lengths])
    contents = [rows(length, int(start)) for length, start in zip(lengths, starts)]
    names = [str(Path(folder) / f"{name}-{number}.records") for number in range(len(lengths))]
    if strategy.rank == 0:
        for path, (x, y) in zip(names, contents):
            with tf.io.TFRecordWriter(path) as writer:
                for row in np.concatenate([x, y], 1):
                    writer.write(row.tobytes())
    meet(strategy)
    return names, contents


def parse(record: tf.Tensor) -> tuple:
    row = tf.ensure_shape(tf.io.decode_raw(record, tf.float32), [FEATURES + 1])
    return row[:FEATURES], row[FEATURES:]


def read_records(names: List[str]) -> Dataset:
    return tf.data.TFRecordDataset(names).map(parse)


def meet(strategy) -> None:
    strategy.gather(tf.constant([0]), axis=0)
