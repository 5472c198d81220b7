"""Operations on the gradients that a server holds until their step is applied."""

from __future__ import annotations

from typing import List, Optional, Sequence, Union

import tensorflow as tf

from tf_strategies.native.ledger.calls import Integer, run

__all__ = ["accumulate", "accumulate_rows", "discard", "gather_rows", "sum_gradients"]

Shape = Union[tf.TensorShape, Sequence[Optional[int]]]


def accumulate(
    tensors: Sequence[tf.Tensor], *, ledger: str, key: str, worker: Integer, step: Integer
) -> tf.Tensor:
    """Stores a worker's gradients under a key, in place of its earlier ones. It does not copy them.

    Args:
        tensors: one or more tensors of one dtype: float16, bfloat16, float32 or float64. Their number, shapes
            and dtype must be equal on all workers.
        ledger: the name of the ledger.
        key: the variable, or the pack of variables, of the gradients.
        worker: the number of the worker.
        step: the step at which the worker read the weights.

    Returns:
        Scalar int64: the number of gradients on this server for the ledger.

    Raises:
        tf.errors.InvalidArgumentError: another worker's gradients have different shapes. The message shows
            both.
    """
    return run("accumulate", worker=worker, step=step, tensors=list(tensors), ledger=ledger, key=key)


def sum_gradients(
    members: tf.Tensor, *, ledger: str, key: str, step: Integer, dtype: tf.DType, shapes: Sequence[Shape]
) -> List[tf.Tensor]:
    """Returns the sum of the members' gradients for a step.

    They are added in the order of members, so the bits are always the same. float16 and bfloat16 are rounded after
    every addition.

    Args:
        members: [m] int32, the numbers of the workers, ascending.
        ledger: the name of the ledger.
        key: as for `accumulate`.
        step: the step of the gradients.
        dtype: the dtype of the accumulated tensors.
        shapes: the shapes of the accumulated tensors, as far as they are known.

    Returns:
        One sum for each tensor of a gradient.

    Raises:
        tf.errors.FailedPreconditionError: a member has no gradient for this step on this server. The message
            names the member.
    """
    return run(
        "sum_gradients",
        members=members,
        step=step,
        T=dtype,
        N=len(shapes),
        shapes=list(shapes),
        ledger=ledger,
        key=key,
    )


def accumulate_rows(
    slices: tf.IndexedSlices, *, ledger: str, key: str, worker: Integer, step: Integer
) -> tf.Tensor:
    """Does the same as `accumulate` for rows of a variable.

    Args:
        slices: indices [n], which are converted to int64, and values [n, ...]. n may differ between workers, and may
            be 0.
        ledger: the name of the ledger.
        key: as for `accumulate`.
        worker: the number of the worker.
        step: the step at which the worker read the weights.
    """
    return run(
        "accumulate_rows",
        worker=worker,
        step=step,
        indices=tf.cast(slices.indices, tf.int64),
        values=slices.values,
        ledger=ledger,
        key=key,
    )


def gather_rows(
    members: tf.Tensor, *, ledger: str, key: str, step: Integer, dtype: tf.DType, row_shape: Shape
) -> tf.IndexedSlices:
    """Returns the members' rows for a step, in the order of the members' numbers.

    Indices may repeat. The server keeps the rows.

    Args:
        members: [m] int32, the numbers of the workers, ascending.
        ledger: the name of the ledger.
        key: as for `accumulate`.
        step: the step of the gradients.
        dtype: the dtype of the values.
        row_shape: the shape of a row, as far as it is known.
    """
    indices, values = run(
        "gather_rows",
        members=members,
        step=step,
        T=dtype,
        row_shape=row_shape,
        ledger=ledger,
        key=key,
    )
    return tf.IndexedSlices(values, indices)


def discard(ledger: str, step: Integer) -> tf.Tensor:
    """Frees the gradients of a step and of all steps before it, under every key, on this server.

    Args:
        ledger: the name of the ledger.
        step: the step.

    Returns:
        Scalar int64: the number of remaining gradients for the ledger.
    """
    return run("discard", step=step, ledger=ledger)
