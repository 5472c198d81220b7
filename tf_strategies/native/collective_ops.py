"""TensorFlow operations for the collectives, in eager code and in graphs.

Each collective has an instance number, from `Communicator.next_instance`. All workers must therefore create the same
collectives in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from tf_strategies.native import communicator as communicators
from tf_strategies.native import loader
from tf_strategies.native.communicator import Communicator

if TYPE_CHECKING:
    from tf_strategies.native.subgroup import Subcommunicator


class AllToAll(NamedTuple):
    """Holds the result of `all_to_all`.

    Attributes:
        received: [n, ...], the rows that the workers sent to this one, concatenated along axis 0 by rank.
        lengths: [workers] int64, the number of rows from each worker.
    """

    received: tf.Tensor
    lengths: tf.Tensor


def all_reduce(
    tensors: Sequence[tf.Tensor],
    *,
    communicator: Communicator | Subcommunicator,
    reduction: str = "sum",
    name: str,
    layout: str = "",
) -> list[tf.Tensor]:
    """Reduces a pack of tensors elementwise over all workers. Every worker gets the same bits.

    Args:
        tensors: one or more tensors of one dtype: float32, float64, float16, bfloat16, int32 or int64. Their
            number and shapes must be equal on all workers.
        communicator: the communicator of the group.
        reduction: "sum", "mean" (the sum, divided once by the number of workers), "min" or "max".
        name: the name of the collective, for messages. Its digits may differ between workers.
        layout: a description of the elements. Workers with different layouts get an error.

    Returns:
        The reduced tensors, in the same order.

    Raises:
        tf.errors.UnavailableError: a worker is lost.
        tf.errors.InvalidArgumentError: workers requested different collectives.
        tf.errors.DeadlineExceededError: a worker did not take part within the timeout.
    """
    return loader.library().tf_strategies_all_reduce(
        tensors=list(tensors),
        reduction=reduction,
        communicator=communicator.id,
        instance=communicator.next_instance(name + layout),
        label=name,
        layout=layout,
    )


def broadcast(
    tensor: tf.Tensor, *, communicator: Communicator | Subcommunicator, name: str, root: int = 0
) -> tf.Tensor:
    """Returns the tensor of worker `root` on every worker.

    It completes on a worker when all workers to which this worker sends have received the tensor. It raises the
    errors of `all_reduce`.

    Args:
        tensor: any numeric dtype or bool. Dtype and shape must be equal on all workers.
        communicator: the communicator of the group.
        name: the name of the collective, for messages.
        root: the rank whose tensor is sent.
    """
    return loader.library().tf_strategies_broadcast(
        tensor=tensor,
        root=root,
        communicator=communicator.id,
        instance=communicator.next_instance(name),
        label=name,
    )


def all_gather(
    tensor: tf.Tensor, *, communicator: Communicator | Subcommunicator, name: str, layout: str = ""
) -> tf.Tensor:
    """Concatenates the tensors of all workers along axis 0, by rank.

    It raises the errors of `all_reduce`.

    Args:
        tensor: [n, ...], any numeric dtype or bool. n may differ between workers; the other dimensions must be equal.
        communicator: the communicator of the group.
        name: the name of the collective, for messages.
        layout: as for `all_reduce`.
    """
    return loader.library().tf_strategies_all_gather(
        tensor=tensor,
        communicator=communicator.id,
        instance=communicator.next_instance(name + layout, count=2),
        label=name,
        layout=layout,
    )


def all_to_all(
    tensor: tf.Tensor,
    lengths: tf.Tensor | Sequence[int],
    *,
    communicator: Communicator | Subcommunicator,
    name: str,
    layout: str = "",
) -> AllToAll:
    """Sends some rows of a tensor to each worker, including this one.

    Args:
        tensor: [m, ...], any numeric dtype or bool: the rows for worker 0 come first. All dimensions except
            the first must be equal on all workers.
        lengths: [workers] int64, the number of rows for each worker. They add up to m.
        communicator: the communicator of the group.
        name: the name of the collective, for messages.
        layout: as for `all_reduce`.

    Raises:
        tf.errors.InvalidArgumentError: lengths are negative or do not add up to m. The other workers get an
            error, too.

    It also raises the errors of `all_reduce`.
    """
    return AllToAll(
        *loader.library().tf_strategies_all_to_all(
            tensor=tensor,
            lengths=tf.cast(lengths, tf.int64),
            communicator=communicator.id,
            instance=communicator.next_instance(name + layout, count=2),
            label=name,
            layout=layout,
        )
    )


def barrier(*, communicator: Communicator | Subcommunicator, name: str) -> tf.Operation | None:
    """Completes when every worker has called it. It raises the errors of `all_reduce`.

    Args:
        communicator: the communicator of the group.
        name: the name of the collective, for messages.
    """
    return loader.library().tf_strategies_barrier(
        communicator=communicator.id, instance=communicator.next_instance(name), label=name
    )


@tf.RegisterGradient("TfStrategies>AllReduce")
def _all_reduce_gradient(op: tf.Operation, *upstream: tf.Tensor) -> list[tf.Tensor]:
    """Returns the all-reduce of the upstream gradients, because each input contributes to the output of every worker."""
    reduction = op.get_attr("reduction").decode()
    if reduction not in ("sum", "mean"):
        raise LookupError(f"all_reduce with reduction {reduction!r} has no gradient; use 'sum' or 'mean'")
    label = op.get_attr("label").decode()
    return all_reduce(
        upstream,
        communicator=communicators.find(op.get_attr("communicator")),
        reduction=reduction,
        name=f"{label}/gradient",
        layout=op.get_attr("layout").decode(),
    )
