"""Sends many tensors of one worker to all others, several in a message."""

from __future__ import annotations

from typing import Callable, Dict

import tensorflow as tf

from tf_strategies.collective.calls.values import joined, taken_apart
from tf_strategies.collective.exchange.packing import plan_packs

__all__ = ["values_of_worker"]


def values_of_worker(
    send: Callable[[tf.Tensor, int], tf.Tensor],
    values: Dict[str, tf.Tensor],
    *,
    bytes_a_message: int = 16 << 20,
) -> Dict[str, tf.Tensor]:
    """Returns the values of a worker, by name. A collective.

    Args:
        send: returns the tensor of that worker, given that of this one and the number of the message.
        values: those of this worker, by name: the same names, shapes and dtypes on all workers.
        bytes_a_message: how large a message of several values is at most. It is a copy of them.
    """
    with tf.device("CPU:0"):
        tensors = {name: tf.convert_to_tensor(value) for name, value in values.items()}
        names = list(tensors)
        sizes = [(each.dtype, each.shape.num_elements() * each.dtype.size) for each in tensors.values()]
        found: Dict[str, tf.Tensor] = {}
        for number, positions in enumerate(plan_packs(sizes, bytes_a_message)):
            pack = [tensors[names[position]] for position in positions]
            received = taken_apart(send(joined(pack), number), pack)
            found.update(zip((names[position] for position in positions), received))
        return found
