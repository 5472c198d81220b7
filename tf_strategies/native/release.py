"""Ends iterators of datasets without making anybody wait.

The end of an iterator waits for the thread that tunes it, which can miss the signal by a race in TensorFlow 2.15 to 2.21 at
least. It then sleeps for as long as the iterator has lived, a minute at most. Python would wait with the interpreter locked,
between two epochs of `fit` for example, and all workers would wait for this one. So a thread of the library ends iterators.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Sequence, Set

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies._tf import compat
from tf_strategies.native import loader

__all__ = ["release_after", "with_iterators_released"]

_waiting: Set[weakref.finalize] = set()


def with_iterators_released(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Lets another thread end the iterators of this dataset object once they are dropped; returns the dataset.

    Args:
        dataset: a dataset or a distributed dataset.
    """
    loader.library()  # now, rather than when the first iterator is dropped
    return compat.show_iterators(dataset, lambda made: release_after(made, compat.iterator_handles(made)))


def release_after(owner: Any, handles: Sequence[tf.Tensor]) -> None:
    """Lets another thread end the resources once `owner` is dropped and nobody else has a handle of them.

    What is still in use when the interpreter ends is left to the end of the process.

    Args:
        owner: the object that has been using the resources.
        handles: [] each, eager tensors of dtype resource, in the order in which they should end.
    """
    _stop_at_exit()
    entry = weakref.finalize(owner, _release, handles)
    entry.atexit = False
    _waiting.add(entry)
    weakref.finalize(owner, _waiting.discard, entry).atexit = False


def _release(handles: Sequence[tf.Tensor]) -> None:
    with contextlib.suppress(Exception):  # then the resource ends where its last handle is dropped
        for handle in handles:
            with tf.init_scope(), tf.device(handle.device):
                loader.library().tf_strategies_release_later(handle=handle)


@functools.cache
def _stop_at_exit() -> None:
    at_exit.register(_stop)


def _stop() -> None:
    """Keeps what is in use, and what is used no more but has not ended in time, until the process has ended."""
    with contextlib.suppress(Exception), tf.init_scope(), tf.device("CPU:0"):
        loader.library().tf_strategies_stop_releasing()
    for entry in list(_waiting):
        found = entry.detach()
        if found is not None:
            _release(found[2][0])
    _waiting.clear()
