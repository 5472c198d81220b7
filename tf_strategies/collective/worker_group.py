"""Defines the interface of a group of workers, for `SingleWorker` and `ConnectedWorkers`."""

from __future__ import annotations

import weakref
from typing import Any, Callable, ContextManager, Dict, List, Protocol, Sequence, Tuple

import tensorflow as tf

__all__ = ["ConnectedGroup", "WorkerGroup"]


class WorkerGroup(Protocol):
    """The workers that train together, as one of them sees them.

    `all_reduce`, `all_gather`, `all_to_all` and `broadcast` are collectives: all workers must call them alike. Workers compare
    the names without their digits, since Keras numbers layers, and a `layout` to the letter.
    """

    @property
    def rank(self) -> int:
        """This worker's number, from 0."""

    @property
    def size(self) -> int:
        """The number of workers."""

    @property
    def usable(self) -> bool:
        """Whether the group is open, and nothing has gone wrong in it."""

    def name_of(self, rank: int) -> str:
        """Returns how messages name a worker."""

    def all_reduce(self, tensors: Sequence[tf.Tensor], name: str, layout: str = "") -> List[tf.Tensor]:
        """Returns the sum over workers of each tensor of one pack (all of one dtype)."""

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        """Returns the tensors of all workers one after the other along axis 0; their first dimensions may differ."""

    def all_to_all(
        self, tensor: tf.Tensor, lengths: tf.Tensor, name: str, layout: str = ""
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        """Returns what the workers send to this one, by rank, and how many rows each of them sent, [workers] int64.

        Args:
            tensor: the rows for worker 0 first; dimensions agree but for the first.
            lengths: [workers] int64, how many rows each worker gets.
            name: for messages.
            layout: how the rows are to be read, where that may differ.
        """

    def broadcast(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Returns the tensor of worker 0."""

    def training(self) -> ContextManager[Callable[[bool], bool]]:
        """Does the same as `Communicator.training`."""

    def stats(self) -> Dict[str, Any]:
        """Returns counters, as `Communicator.stats()`."""

    def join(self, user: object) -> None:
        """Counts an object that uses the group."""

    def leave(self, user: object) -> None:
        """Releases the object's use of the group.

        The last object to leave closes the group. Later collectives fail.
        """


class ConnectedGroup(WorkerGroup, Protocol):
    """A group of several workers, who can also compare something without a collective."""

    def new_topic(self, judge: weakref.WeakMethod) -> str:
        """Returns a topic for `compare`, the same on all workers if all call this in the same order.

        Args:
            judge: on worker 0, compares what workers say, as `ControlPlane.judge`; the topic ends with its object.
        """

    def compare(self, topic: str, key: str, payload: Any) -> None:
        """Says something about a key, which worker 0 compares with what the others say; not a collective."""
