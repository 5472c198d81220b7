"""Stands for the connections of a worker that has started while the others train, until it joins them."""

from __future__ import annotations

import contextlib
from typing import Callable, FrozenSet, Iterator, Optional, Sequence

from tf_strategies.addresses import split_address
from tf_strategies.cluster import Cluster
from tf_strategies.types import Json, JsonObject

__all__ = ["Unconnected"]


class Unconnected:
    """The part of the interface of a `Communicator` that is used before a worker joins. It has no connections.

    Args:
        cluster: the whole cluster, so that a script sees the rank and the size with which the others began.
    """

    usable = True
    has_failed = False
    has_functions = False
    failure = ""
    epoch = 0

    def __init__(self, cluster: Cluster) -> None:
        tasks = cluster.worker_tasks
        self.rank: int = tasks.index(cluster.task)
        self.size = len(tasks)
        self.hosts = tuple(split_address(cluster.address_of(task))[0] for task in tasks)

    @contextlib.contextmanager
    def training(self) -> Iterator[Callable[[bool], bool]]:
        """Yields a function that returns its argument."""
        yield lambda wanted: wanted

    def set_comparer(self, topic: str, comparer: Optional[Callable[..., Optional[str]]]) -> None:
        """Does nothing, because there is nobody to compare with."""

    def compare(self, topic: str, key: str, payload: Json) -> None:
        """Does nothing, because there is nobody to compare with."""

    def admit(self, fit: Optional[int]) -> None:
        """Does nothing."""

    def let_leave(self, ranks: FrozenSet[int]) -> None:
        """Does nothing."""

    def stats(self) -> JsonObject:
        """Returns counters of nothing."""
        return {"transport": "none", "bytes_sent": 0, "bytes_received": 0, "collectives": []}

    def records(self) -> JsonObject:
        """Returns no collectives."""
        return {"collectives": []}

    def step_ended(self) -> None:
        """Does nothing."""

    def stand_for(self, former: Sequence[int]) -> None:
        """Does nothing."""

    def report_failure(self, code: int, message: str, peer: int) -> None:
        """Does nothing."""

    def close(self, why: str = "") -> None:
        """Does nothing."""

    def close_at_exit(self) -> None:
        """Does nothing."""
