"""Describes the parts of a variable on parameter servers, and the update of one part."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable, Iterator, NamedTuple, Optional

import tensorflow as tf

from tf_strategies.types import Result

__all__ = ["Part", "Update", "rows_of_part", "running_update", "updating_part"]

_this_thread = threading.local()


class Part(NamedTuple):
    """The rows of a variable that one server holds.

    Attributes:
        variable: the TensorFlow variable that holds the rows. All workers share its handle by name.
        device: of the server, "/job:ps/replica:0/task:1/device:CPU:0".
        start: the index of the first row; 0 for a scalar.
        rows: the number of rows; 0 for a scalar.
    """

    variable: tf.Variable
    device: str
    start: int
    rows: int

    def on_server(self, build: Callable[[], Result]) -> Result:
        """Returns `build()`, with its operations placed on the device of the part."""
        with tf.device(self.device):
            return build()


def rows_of_part(part: Part, slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the rows that belong to the part, numbered from its first row."""
    numbers = slices.indices - tf.cast(part.start, slices.indices.dtype)
    inside = tf.where((numbers >= 0) & (numbers < part.rows))[:, 0]
    return tf.IndexedSlices(
        tf.gather(slices.values, inside), tf.gather(numbers, inside), dense_shape=part.variable.shape
    )


class Update(NamedTuple):
    """An update that runs on a server.

    Attributes:
        part: the number of the part that is updated.
        device: of the server.
    """

    part: int
    device: str


def running_update() -> Optional[Update]:
    """Returns the update that is being built on this thread, or None."""
    return getattr(_this_thread, "update", None)


@contextlib.contextmanager
def updating_part(index: int, device: str) -> Iterator[None]:
    """Opens a context in which an update is built for the server `device`.

    A variable in several parts then stands for its part with this number.
    """
    before = running_update()
    _this_thread.update = Update(index, device)
    try:
        yield
    finally:
        _this_thread.update = before
