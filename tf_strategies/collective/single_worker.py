"""Implements the group of a single process."""

from __future__ import annotations

import contextlib
import math
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.collective.worker_group import Place, WorkersOfSubgroup
from tf_strategies.types import JsonObject

__all__ = ["SingleWorker"]


class SingleWorker:
    """A group of one worker. It uses no network, and does not load the native library."""

    rank = 0
    size = 1
    now = Place(0, 1)
    may_have_others = False
    hosts = ("here",)
    timeout = math.inf
    usable = True
    is_newcomer = False
    is_behind = False
    generation: Optional[int] = None

    def __init__(self, name: str = "worker 0") -> None:
        self._name = name

    def rank_in_graph(self) -> int:
        return 0

    def size_in_graph(self) -> int:
        return 1

    def keep_functions(self) -> None:
        """Does nothing, because the group never changes."""

    def suiting_functions(self, *, has_newcomers: bool) -> Optional[List[str]]:
        del has_newcomers
        return None

    def name_of(self, rank: int) -> str:
        del rank
        return self._name

    def subgroup(self, ranks: Sequence[int]) -> Optional[WorkersOfSubgroup]:
        del ranks
        return self

    failure = ""

    def end_failures(self) -> None:
        """Does nothing, because a single worker has no connections."""

    def close(self) -> None:
        """Does nothing, because a single worker has no connections."""

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], name: str, layout: str = "", reduction: str = "sum"
    ) -> List[tf.Tensor]:
        del name, layout, reduction
        return list(tensors)

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        del name, layout
        return tensor

    def all_to_all(
        self, tensor: tf.Tensor, lengths: tf.Tensor, name: str, layout: str = ""
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        del name, layout
        return tensor, lengths

    def broadcast(self, tensor: tf.Tensor, name: str, root: int = 0) -> tf.Tensor:
        del name, root
        return tensor

    @contextlib.contextmanager
    def training(self) -> Iterator[Callable[[bool], bool]]:
        yield lambda wanted: wanted

    def stats(self) -> JsonObject:
        return {"transport": "none", "bytes_sent": 0, "bytes_received": 0, "collectives": []}

    def records(self) -> JsonObject:
        return {"collectives": []}

    def join(self, user: object) -> None:
        """Does nothing, because a single worker has no connections."""

    def leave(self, user: object) -> None:
        """Does nothing, because a single worker has no connections."""
