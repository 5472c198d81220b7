"""Deletes iterators of datasets on another thread, because this can take long.

The destructor of an iterator waits for the thread that tunes it. In TensorFlow 2.15 to 2.21, this thread can
miss the signal to stop, because of a race. It then sleeps as long as the iterator has existed, up to a minute.
Python would wait with the interpreter locked, for example between two epochs of `fit`, and all workers would
wait for this one. So a thread of our library deletes iterators.

An iterator of several devices frees its dataset before it has stopped the thread that reads from it (TensorFlow
2.21), and the process can crash. This concerns the iterators of every strategy, also with one device. So the
datasets of all of them are kept until the iterator has been deleted.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Sequence, Set

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies._tf import compat
from tf_strategies.native import loader

__all__ = ["keep_datasets_of_iterators", "release_after", "with_iterators_released"]

_waiting: Set[weakref.finalize] = set()


def with_iterators_released(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes another thread delete the iterators of this dataset object when they are garbage.

    Args:
        dataset: a dataset or a distributed dataset.

    Returns:
        The dataset.
    """
    keep_datasets_of_iterators()
    return compat.show_iterators(dataset, lambda made: release_after(made, compat.iterator_handles(made)))


def keep_datasets_of_iterators() -> None:
    """Keeps the dataset of each iterator of several devices that is made from now on until the iterator has been deleted."""
    loader.library()  # loads the library now, and not when the first iterator is deleted
    compat.watch_device_iterators(_keep)


def _keep(handle: tf.Tensor, dataset: tf.Tensor) -> None:
    _stop_at_exit()
    with contextlib.suppress(Exception):  # the device of the handle is in a process without this library
        _release_later(handle, [dataset])


def release_after(owner: object, handles: Sequence[tf.Tensor]) -> None:
    """Makes another thread delete resources when `owner` is garbage and no other object has handles of them.

    Resources that are in use when the interpreter ends are deleted with the process.

    Args:
        owner: the object that uses the resources.
        handles: eager tensors [] of dtype resource, in the order in which to delete them.
    """
    _stop_at_exit()
    entry = weakref.finalize(owner, _release, handles)
    entry.atexit = False
    _waiting.add(entry)
    weakref.finalize(owner, _waiting.discard, entry).atexit = False


def _release(handles: Sequence[tf.Tensor]) -> None:
    with contextlib.suppress(Exception):  # the resource is then deleted with its last handle
        for handle in handles:
            _release_later(handle, [])


def _release_later(handle: tf.Tensor, kept: Sequence[tf.Tensor]) -> None:
    with tf.init_scope(), tf.device(handle.device):
        loader.library().tf_strategies_release_later(handle=handle, kept=kept)


@functools.cache
def _stop_at_exit() -> None:
    at_exit.register(_stop)


def _stop() -> None:
    """Keeps resources that are in use, or are not deleted in time, until the process ends."""
    with contextlib.suppress(Exception), tf.init_scope(), tf.device("CPU:0"):
        loader.library().tf_strategies_stop_releasing()
    for entry in list(_waiting):
        found = entry.detach()
        if found is not None:
            _release(found[2][0])
    _waiting.clear()
