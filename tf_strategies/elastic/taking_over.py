"""Takes over the values of variables from another worker, many of them in one message."""

from __future__ import annotations

from typing import Dict, List, Protocol

import tensorflow as tf

__all__ = ["of_worker"]

_BYTES_A_MESSAGE = 16 << 20  # a message of several values is a copy of them


class _Sharing(Protocol):
    def of_worker(self, rank: int, value: tf.Tensor, what: str) -> tf.Tensor:
        """Returns the value of a worker. A collective."""


def of_worker(strategy: _Sharing, rank: int, values: Dict[str, tf.Tensor]) -> Dict[str, tf.Tensor]:
    """Returns the values of a worker, by name. A collective.

    Args:
        strategy: the strategy.
        rank: the worker.
        values: those of this worker, by name: the same names, shapes and dtypes on all workers.
    """
    found: Dict[str, tf.Tensor] = {}
    with tf.device("CPU:0"):
        values = {name: tf.convert_to_tensor(value) for name, value in values.items()}
        for number, names in enumerate(_messages(values)):
            flat = [tf.reshape(values[name], [-1]) for name in names]
            message = flat[0] if len(flat) == 1 else tf.concat(flat, axis=0)
            received = strategy.of_worker(rank, message, f"variables, message {number}")
            parts = tf.split(received, [int(tf.size(each)) for each in flat])
            found.update(
                zip(names, (tf.reshape(part, values[name].shape) for name, part in zip(names, parts)))
            )
    return found


def _messages(values: Dict[str, tf.Tensor]) -> List[List[str]]:
    """Returns the names of the values of each message. They have one dtype; a large value has a message of its own."""
    messages: List[List[str]] = []
    filling: Dict[tf.DType, int] = {}  # the number of a message that has room
    sizes: Dict[int, int] = {}
    for name, value in values.items():
        size = value.shape.num_elements() * value.dtype.size
        number = filling.get(value.dtype)
        if number is None or sizes[number] + size > _BYTES_A_MESSAGE:
            number = len(messages)
            messages.append([])
            sizes[number] = 0
        messages[number].append(name)
        sizes[number] += size
        filling[value.dtype] = number
    return messages
