"""Defines the interface of a group of workers, for `SingleWorker` and `ConnectedWorkers`."""

from __future__ import annotations

import weakref
from typing import Callable, ContextManager, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.types import Json, JsonObject

__all__ = ["Collectives", "ConnectedGroup", "Place", "WorkerGroup", "WorkersOfSubgroup"]


class Place(NamedTuple):
    """The place of this worker in a group.

    Attributes:
        rank: its number, from 0.
        size: the number of workers.
    """

    rank: int
    size: int


class Collectives(Protocol):
    """The interface of workers that communicate.

    `all_reduce`, `all_gather`, `all_to_all` and `broadcast` are collectives: all workers must make the same
    calls. Workers compare the names without digits, because Keras numbers layers, and compare `layout`
    exactly.

    Where the workers can change, a function that was traced stays in use as long as it holds neither `rank` nor `size`.
    """

    @property
    def rank(self) -> int:
        """This worker's number, from 0. A function that reads it while it is traced holds it."""

    @property
    def size(self) -> int:
        """The number of workers. A function that reads it while it is traced holds it."""

    @property
    def now(self) -> Place:
        """The rank and the size for what need not change with them: messages, and whether there are other workers.

        In a function that is being traced the size is that for which it is made; see `KeptFunctions`.
        """

    def rank_in_graph(self) -> Union[int, tf.Tensor]:
        """Returns the rank. In a graph it is [] float64 and changes with the group, if the group can change."""

    def size_in_graph(self) -> Union[int, tf.Tensor]:
        """Returns the number of workers. In a graph it is [] float64 and changes with the group, if the group can change."""

    @property
    def may_have_others(self) -> bool:
        """Whether there are other workers, or others may join later. What is decided once must suit them."""

    @property
    def hosts(self) -> Tuple[str, ...]:
        """The identity of each worker's host, by rank; see `host.identity`."""

    @property
    def timeout(self) -> float:
        """The number of seconds that a collective waits for other workers."""

    @property
    def usable(self) -> bool:
        """Whether the group is open and has not failed."""

    @property
    def failure(self) -> str:
        """The reason why the group has failed, or ""."""

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker in messages."""

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], name: str, layout: str = "", reduction: str = "sum"
    ) -> List[tf.Tensor]:
        """Returns the sum, "mean", "min" or "max" over workers of each tensor of one pack (all of one dtype)."""

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        """Returns the tensors of all workers, concatenated along axis 0 by rank.

        Their first dimensions may differ.
        """

    def all_to_all(
        self, tensor: tf.Tensor, lengths: tf.Tensor, name: str, layout: str = ""
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        """Returns the rows that the workers send to this one, by rank, and the number of rows from each worker, [workers] int64.

        Args:
            tensor: the rows to send, those for worker 0 first. All dimensions except the first are equal on
                all workers.
            lengths: [workers] int64, the number of rows for each worker.
            name: for messages.
            layout: a description of the rows, which workers compare.
        """

    def broadcast(self, tensor: tf.Tensor, name: str, root: int = 0) -> tf.Tensor:
        """Returns the tensor of worker `root`."""


class WorkerGroup(Collectives, Protocol):
    """The interface of the workers that train together."""

    def keep_functions(self) -> None:
        """Makes the functions that are traced from now on in such a way that they can be used when the group has changed."""

    def suiting_functions(self, *, has_newcomers: bool) -> Optional[List[str]]:
        """Returns a text for each function that was traced, with its collectives; None if one does not suit the present group.

        Args:
            has_newcomers: whether workers have just joined.
        """

    @property
    def is_newcomer(self) -> bool:
        """Whether this worker has started while the others train, and has not joined them yet. It has no collectives."""

    @property
    def generation(self) -> Optional[int]:
        """Counts how often the group has formed again; None if it never does."""

    @property
    def is_behind(self) -> bool:
        """Whether this worker has started while the others train, and still makes variables that they have already."""

    def subgroup(self, ranks: Sequence[int]) -> Optional[WorkersOfSubgroup]:
        """Returns a group of these workers, or None if this worker is not among them. A collective of the whole group."""

    def training(self) -> ContextManager[Callable[[bool], bool]]:
        """Does the same as `Communicator.training`."""

    def stats(self) -> JsonObject:
        """Returns the counters of `Communicator.stats()`."""

    def records(self) -> JsonObject:
        """Returns the last collectives of this worker; see `Communicator.records`."""

    def join(self, user: object) -> None:
        """Counts an object that uses the group."""

    def leave(self, user: object) -> None:
        """Releases the object's use of the group.

        The last object to leave closes the group. Later collectives fail.
        """


class WorkersOfSubgroup(WorkerGroup, Protocol):
    """The interface of some workers of a group, which have connections of their own."""

    def end_failures(self) -> None:
        """Reports no failures from now on, as before the workers close their connections."""

    def close(self) -> None:
        """Closes the connections."""


class ConnectedGroup(WorkerGroup, Protocol):
    """The interface of a group of several workers, which can also compare values without a collective."""

    def new_topic(self, compare_on_first: weakref.WeakMethod) -> str:
        """Returns a topic for `compare`. All workers must make their topics in the same order.

        Args:
            compare_on_first: the method by which worker 0 compares the values of two workers for a key. The topic
                ends when its object is deleted.
        """

    def compare(self, topic: str, key: str, payload: Json) -> None:
        """Sends a value for a key to worker 0, which compares it with the values of the other workers.

        Not a collective.
        """
