"""The workers that take a step together: all of them, or this one alone while it takes a local step."""

from __future__ import annotations

import contextlib
from typing import Iterator, List, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.collective.worker_group import Collectives, Place

__all__ = ["WorkersOfStep"]


class WorkersOfStep:
    """A group whose collectives concern this worker alone within `alone`.

    Args:
        everyone: all workers.
        only_me: a group of one worker.
    """

    def __init__(self, everyone: Collectives, only_me: Collectives) -> None:
        self._everyone, self._only_me = everyone, only_me
        self._now = everyone

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Opens a context in which this worker is the only one. Its rank stays."""
        before, self._now = self._now, self._only_me
        try:
            yield
        finally:
            self._now = before

    @property
    def is_alone(self) -> bool:
        """Whether this worker takes the step without the others."""
        return self._now.now.size < self._everyone.now.size

    @property
    def rank(self) -> int:
        return self._everyone.rank

    @property
    def size(self) -> int:
        return self._now.size

    @property
    def now(self) -> Place:
        return Place(self._everyone.now.rank, self._now.now.size)

    def rank_in_graph(self) -> Union[int, tf.Tensor]:
        return self._everyone.rank_in_graph()

    def size_in_graph(self) -> Union[int, tf.Tensor]:
        return self._now.size_in_graph()

    @property
    def may_have_others(self) -> bool:
        return self._everyone.may_have_others

    @property
    def hosts(self) -> Tuple[str, ...]:
        return self._now.hosts

    @property
    def timeout(self) -> float:
        return self._everyone.timeout

    @property
    def usable(self) -> bool:
        return self._everyone.usable

    @property
    def failure(self) -> str:
        return self._everyone.failure

    def name_of(self, rank: int) -> str:
        return self._everyone.name_of(rank)

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], name: str, layout: str = "", reduction: str = "sum"
    ) -> List[tf.Tensor]:
        return self._now.all_reduce(tensors, name, layout, reduction)

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        return self._now.all_gather(tensor, name, layout)

    def all_to_all(
        self, tensor: tf.Tensor, lengths: tf.Tensor, name: str, layout: str = ""
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        return self._now.all_to_all(tensor, lengths, name, layout)

    def broadcast(self, tensor: tf.Tensor, name: str, root: int = 0) -> tf.Tensor:
        return self._now.broadcast(tensor, name, root)
