"""Gives a replica the rows of all replicas, for losses that compare the rows of a batch with each other."""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator

import tensorflow as tf

from tf_strategies.types import Structure

__all__ = ["joint_rows", "noting_joint_rows", "were_joint_rows_taken"]

_this_thread = threading.local()


def joint_rows(rows: Structure) -> Structure:
    """Returns the rows of the joint batch: those of all replicas, one replica after the other.

    Use it in a loss, a metric, a layer or a step that compares the rows of a batch with each other, such as a contrastive loss,
    or that is no mean over rows, such as the Dice loss of a whole batch. With it, P workers train as one process does. It can be
    differentiated. In one process without a strategy, and while Keras builds a model, it returns its argument.

    It is a collective: all replicas must call it. With compression, gradients of what it returns are not compressed. In a loop
    of your own with `strategy.run`, gradients are added up over replicas, so divide a loss that each of them computes from the
    whole joint batch by their number.

    Args:
        rows: a tensor with a row for each example, [rows, ...], or a structure of such tensors. The number of rows may differ
            between replicas; the other dimensions must not.

    Returns:
        The same structure, with tensors of [rows of all replicas, ...].

    Raises:
        OptionsError: in a local step, which does not have the rows of the other workers.
        NotImplementedError: in a step of `SyncReplicasStrategy` with several workers, whose workers exchange gradients alone.

    Example:
        >>> def contrastive(labels, embeddings):
        ...     labels, embeddings = tfs.joint_rows((labels, tf.math.l2_normalize(embeddings, axis=1)))
        ...     same = tf.cast(labels == tf.transpose(labels), tf.float32)
        ...     similar = embeddings @ tf.transpose(embeddings)
        ...     return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(same, similar))
        >>> round(float(contrastive(tf.constant([[0], [1]]), tf.eye(2))), 4)
        0.5032
    """
    context = tf.distribute.get_replica_context()
    if context is None or not tf.distribute.has_strategy():
        return rows
    _this_thread.were_taken = True
    # TensorFlow cannot differentiate an all_gather of several tensors.
    return tf.nest.map_structure(lambda each: context.all_gather(each, axis=0), rows)


@contextlib.contextmanager
def noting_joint_rows() -> Iterator[None]:
    """Opens a context in which `were_joint_rows_taken` tells of its own calls alone."""
    before = were_joint_rows_taken()
    _this_thread.were_taken = False
    try:
        yield
    finally:
        _this_thread.were_taken = before


def were_joint_rows_taken() -> bool:
    """Returns True if `joint_rows` was called on this thread in the innermost `noting_joint_rows`."""
    return getattr(_this_thread, "were_taken", False)
