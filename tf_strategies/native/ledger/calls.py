"""Calls the operations of the ledger, eagerly or in a graph, without blocking the threads of a server."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Tuple, Union

import tensorflow as tf

from tf_strategies.native import loader
from tf_strategies.types import Kwargs, Structure

__all__ = ["Caller", "Integer", "names_of", "run", "run_apart"]

_DTYPES = {
    "worker": tf.int32,
    "incarnation": tf.int64,
    "size": tf.int32,
    "names": tf.string,
    "options": tf.string,
    "key": tf.string,
    "text": tf.string,
    "finished": tf.bool,
    "generation": tf.int64,
    "max_staleness": tf.int64,
    "step": tf.int64,
    "rows": tf.int64,
    "quorum": tf.int32,
    "timeout": tf.float64,
}

Integer = Union[int, tf.Tensor]
_Spec = Tuple[str, tf.DType, Tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Caller:
    """Identifies the process that calls.

    Attributes:
        ledger: the name of the ledger.
        worker: the number of the worker.
        incarnation: any int64 that differs between the processes of one worker.
    """

    ledger: str
    worker: int
    incarnation: int


def run(operation: str, **inputs: Any) -> Structure:
    """Runs an operation of the ledger, or adds it to the graph.

    Args:
        operation: the name of the operation, without its prefix.
        **inputs: its inputs and attributes.

    Returns:
        Its outputs.
    """
    outputs = getattr(loader.library(), f"tf_strategies_ledger_{operation}")(**inputs)
    if tf.executing_eagerly():
        tf.nest.flatten(outputs)[0].numpy()
    return outputs


def run_apart(operation: str, *, ledger: str, **inputs: Any) -> Structure:
    """Does the same as `run`, for an operation that may wait or may fail because of other workers.

    In eager code it runs in a function of its own. A server uses one of its few threads for each eager
    operation until it has finished, so waiting operations would soon block it. A failed eager operation also
    fails the operations that were sent after it.

    Args:
        operation: the name of the operation, without its prefix.
        ledger: the name of the ledger.
        **inputs: its other inputs.

    Returns:
        Its output, or a tuple of its outputs.
    """
    if not tf.executing_eagerly():
        return run(operation, ledger=ledger, **inputs)
    device = tf.constant(0).device
    with tf.device(None):
        tensors = {name: tf.convert_to_tensor(value, _DTYPES[name]) for name, value in inputs.items()}
        specs = tuple((name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items())
        outputs = _function_of(operation, ledger, device, specs)(*tensors.values())
        outputs[0].numpy()
    return outputs[0] if len(outputs) == 1 else outputs


@functools.lru_cache(maxsize=256)
def _function_of(
    operation: str, ledger: str, device: str, specs: Tuple[_Spec, ...]
) -> Callable[..., Tuple[tf.Tensor, ...]]:
    def call(*inputs: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        with tf.device(device):
            named = {name: value for (name, _, _), value in zip(specs, inputs)}
            return tuple(tf.nest.flatten(run(operation, ledger=ledger, **named)))

    return tf.function(call, autograph=False).get_concrete_function(
        *(tf.TensorSpec(shape, dtype) for _, dtype, shape in specs)
    )


def names_of(caller: Caller) -> Kwargs:
    """Returns the inputs and attributes of an operation that identify the caller."""
    return {
        "ledger": caller.ledger,
        "worker": caller.worker,
        "incarnation": tf.constant(caller.incarnation, tf.int64),
    }
