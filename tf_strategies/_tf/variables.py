"""Inspects variables, distributed or not, and makes variables that processes share."""

from __future__ import annotations

import contextlib
from typing import List, Optional

import tensorflow as tf

from tf_strategies._tf.private_names import private

__all__ = [
    "BaseResourceVariable",
    "MirroredVariable",
    "ResourceVariable",
    "SyncOnReadVariable",
    "VariableSpec",
    "is_mirrored",
    "is_sync_on_read_variable",
    "record_read",
    "recording",
    "renew_handle",
    "variable_accessed",
    "variable_handle",
    "whole_variable",
]

BaseResourceVariable = private.BaseResourceVariable
MirroredVariable = private.MirroredVariable
ResourceVariable = private.ResourceVariable
SyncOnReadVariable = private.SyncOnReadVariable
VariableSpec = private.VariableSpec

_stale_handles: List[tf.Tensor] = []
is_mirrored = private.is_mirrored
variable_accessed = private.variable_accessed


def whole_variable(value: object) -> Optional[tf.Variable]:
    """Returns the whole variable behind `value`: the variable that it casts or is a replica's part of, or `value` itself.

    Returns None if `value` is not a variable.
    """
    value = getattr(value, "__dict__", {}).get(
        "_variable", value
    )  # the uncast variable of an AutoCastVariable of Keras 2
    if not isinstance(value, tf.Variable):
        return None
    container = getattr(value, "_distributed_container", None)
    return value if container is None else container()


def is_sync_on_read_variable(value: object) -> bool:
    """Returns True if the value is a distributed variable that is reduced when read."""
    return isinstance(value, SyncOnReadVariable)


def variable_handle(shape, dtype, name, *, container, shared_name, op_name=None):
    """Returns the handle of a variable that processes share by name.

    tf.Variable chooses names that other processes cannot know.
    """
    handle = tf.raw_ops.VarHandleOp(
        shape=shape,
        dtype=dtype,
        container=container,
        shared_name=shared_name,
        debug_name=name,
        name=op_name,
    )
    data = private.create_handle_data(tf.TensorShape(shape), dtype)
    private.set_handle_data(handle, data)
    return handle


def renew_handle(variable, handle):
    """Makes a variable use another handle of the same name, because its server has started again.

    The old handle is kept. TensorFlow would tell the new process to forget it, and then end the calls of that moment: "Unable to
    find the relevant tensor remote_handle".
    """
    _stale_handles.append(variable._handle)
    variable._handle = handle


def record_read(variable, forward, backward):
    """Returns the result of `forward()`, and records it on tapes as one read of the variable.

    `backward` computes the gradient of that read.

    tf.custom_gradient cannot do this: the read does not have the variable's handle as an input.
    """
    variable_accessed(variable)
    with private.stop_recording():
        result = forward()
    private.record_operation(
        "ReadVariableOp", [result], [variable.handle], lambda upstream: [backward(upstream)], None
    )
    return result


@contextlib.contextmanager
def recording():
    """Opens a context in which tapes record, also within `record_read`."""
    is_stopped = private.TFE_Py_TapeSetIsStopped()
    if is_stopped:
        private.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        if is_stopped:
            private.TFE_Py_TapeSetStopOnThread()
