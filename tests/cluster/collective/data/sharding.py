"""Checks how datasets are sharded, and the log lines and errors that say so."""

from __future__ import annotations

import logging as python_logging
from typing import Any, Callable, List

import tensorflow as tf
from absl import logging

Dataset = tf.data.Dataset
Policy = tf.data.experimental.AutoShardPolicy


class Lines(python_logging.Handler):
    """Collects what absl logs of datasets while this is open."""

    def __enter__(self) -> Lines:
        self.lines: List[tuple] = []
        self.verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.INFO)
        logging.get_absl_logger().addHandler(self)
        return self

    def __exit__(self, *_: Any) -> None:
        logging.get_absl_logger().removeHandler(self)
        logging.set_verbosity(self.verbosity)

    def emit(self, record: python_logging.LogRecord) -> None:
        if "dataset is" in record.getMessage():
            self.lines.append((record.levelname, record.getMessage()))

    def require(self, strategy, level: str, text: str) -> None:
        """One line of that level with the text on the chief, none elsewhere."""
        assert len(self.lines) == (strategy.rank == 0), (text, self.lines)
        assert all(level == found and text in line for found, line in self.lines), (level, text, self.lines)


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("no error")


def sharding(dataset: Dataset, policy: Policy) -> Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)
