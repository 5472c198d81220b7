"""Workers that are threads of one process: what a compressor talks to, without a network."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Sequence

import numpy as np
import tensorflow as tf

__all__ = ["ThreadWorker", "on_threads"]

_SECONDS = 60.0


class ThreadWorker:
    """One of `size`; `Workers` of tf_strategies/compression/base.py, for eager tensors.

    Attributes:
        bytes_received: from others, gathered or exchanged.
        received: for each gather or exchange, what came from each other worker.
    """

    def __init__(self, rank: int, size: int, meet: threading.Barrier, table: list) -> None:
        self.rank, self.size = rank, size
        self.received: List[List[tf.Tensor]] = []
        self._meet, self._table = meet, table

    @property
    def bytes_received(self) -> int:
        return sum(each.numpy().nbytes for parts in self.received for each in parts)

    def _exchange(self, mine: Any) -> List[Any]:
        self._table[self.rank] = mine
        self._meet.wait()
        found = list(self._table)
        self._meet.wait()
        return found

    def add_up(self, tensors: Sequence[tf.Tensor], then: Callable[[List[tf.Tensor]], Any]) -> Any:
        return then([tf.add_n(each) for each in zip(*self._exchange(list(tensors)))])

    def gather(self, tensor: tf.Tensor, name: str, then: Callable[[tf.Tensor], Any]) -> Any:
        names, tensors = zip(*self._exchange((name, tensor)))
        assert len(set(names)) == 1, names
        return then(self._joined(tensors))

    def all_to_all(self, tensor: tf.Tensor, lengths: tf.Tensor, name: str) -> tf.Tensor:
        names, tensors, cuts = zip(*self._exchange((name, tensor, np.array(lengths))))
        assert len(set(names)) == 1, names
        starts = [np.cumsum(each)[self.rank] - each[self.rank] for each in cuts]
        return self._joined(
            [rows[start : start + cut[self.rank]] for rows, start, cut in zip(tensors, starts, cuts)]
        )

    def _joined(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        self.received.append([each for rank, each in enumerate(tensors) if rank != self.rank])
        return tf.concat(tensors, axis=0)


def on_threads(size: int, work: Callable[[ThreadWorker], Any]) -> List[Any]:
    """What `work` gives on each of so many workers, by rank; its first error, if one has any."""
    meet, table = threading.Barrier(size, timeout=_SECONDS), [None] * size

    def recorded(rank: int) -> Any:
        try:
            return work(ThreadWorker(rank, size, meet, table))
        except BaseException:
            meet.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        jobs = [pool.submit(recorded, rank) for rank in range(size)]
    errors = [job.exception() for job in jobs if job.exception() is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError) or len(errors) == size:
            raise error
    return [job.result() for job in jobs]
