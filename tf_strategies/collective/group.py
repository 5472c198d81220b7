"""Implements the group of a strategy's workers: a single process, or several processes with native collectives."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies._tf import compat
from tf_strategies.cluster import Cluster
from tf_strategies.collective.worker_group import WorkerGroup, WorkersOfSubgroup
from tf_strategies.collective.xla import refuse_xla
from tf_strategies.errors import ClusterConfigError, OptionsError
from tf_strategies.options import CommunicationOptions, Elastic
from tf_strategies.types import Json, JsonObject

if TYPE_CHECKING:
    from tf_strategies.native.communicator import Communicator
    from tf_strategies.native.membership import Membership
    from tf_strategies.native.subgroup import Subcommunicator

__all__ = ["ConnectedWorkers", "SingleWorker", "form_group"]


class SingleWorker:
    """A group of one worker. It uses no network, and does not load the native library."""

    rank = 0
    size = 1
    hosts = ("here",)
    timeout = math.inf
    usable = True

    def __init__(self, name: str = "worker 0") -> None:
        self._name = name

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


class Reformed(NamedTuple):
    """Describes how survivors have formed a group again.

    Attributes:
        lost: the names of the workers without which they go on.
        seconds: since the failure.
    """

    lost: List[str]
    seconds: float


class CommunicatorWorkers:
    """The collectives of the workers of a communicator. All workers must make the same calls.

    Args:
        communicator: a `Communicator` or `Subcommunicator`.
        names: of the workers, by rank.
        hosts: the identities of their hosts, by rank.
        timeout: how long a collective waits, in seconds.
    """

    def __init__(
        self,
        communicator: Union[Communicator, Subcommunicator],
        names: Sequence[str],
        hosts: Sequence[str],
        timeout: float,
    ) -> None:
        from tf_strategies.native import collective_ops

        self._ops = collective_ops
        self._communicator = communicator
        self._names = names
        self.rank: int = communicator.rank
        self.size: int = communicator.size
        self.hosts = tuple(hosts)
        self.timeout = timeout

    @property
    def usable(self) -> bool:
        return self._communicator.usable

    @property
    def failure(self) -> str:
        return self._communicator.failure

    def name_of(self, rank: int) -> str:
        return self._names[rank]

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], name: str, layout: str = "", reduction: str = "sum"
    ) -> List[tf.Tensor]:
        refuse_xla(name)
        totals = self._ops.all_reduce(
            list(tensors), communicator=self._communicator, reduction=reduction, name=name, layout=layout
        )
        _side_by_side(totals[0])
        return totals

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        refuse_xla(name)
        return _side_by_side(
            self._ops.all_gather(tensor, communicator=self._communicator, name=name, layout=layout)
        )

    def all_to_all(
        self, tensor: tf.Tensor, lengths: tf.Tensor, name: str, layout: str = ""
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        refuse_xla(name)
        result = self._ops.all_to_all(
            tensor, lengths, communicator=self._communicator, name=name, layout=layout
        )
        _side_by_side(result.received)
        return result

    def broadcast(self, tensor: tf.Tensor, name: str, root: int = 0) -> tf.Tensor:
        refuse_xla(name)
        return self._ops.broadcast(tensor, communicator=self._communicator, name=name, root=root)


class SubgroupWorkers(CommunicatorWorkers):
    """Some workers of a group."""

    def end_failures(self) -> None:
        """Does the same as `Subcommunicator.end_failures`."""
        self._communicator.end_failures()

    def close(self) -> None:
        """Closes the connections of these workers."""
        self._communicator.close()


class ConnectedWorkers(CommunicatorWorkers):
    """The group of a cluster.

    It is closed when its last user leaves, when this object is deleted, or when the interpreter ends.
    """

    _communicator: Communicator

    def __init__(
        self, cluster: Cluster, options: CommunicationOptions, elastic: Optional[Elastic] = None
    ) -> None:
        from tf_strategies.native.membership import Membership

        self.options = options
        self.elastic = elastic
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._use(Membership.form(cluster, options, elastic))

    def _use(self, membership: Membership) -> None:
        self._membership = membership
        self._topics = itertools.count()
        self._subgroups = itertools.count()
        communicator = membership.communicator
        CommunicatorWorkers.__init__(
            self, communicator, membership.names, communicator.hosts, self.options.timeout
        )
        at_exit.register(communicator.close_at_exit)
        self._finalizer = weakref.finalize(self, _close_elsewhere, membership)
        self._finalizer.atexit = False

    @property
    def can_reform(self) -> bool:
        """Whether the group has failed, and its survivors form it again."""
        return not self._communicator.usable and self._membership.is_succeeded

    def reform(self) -> Reformed:
        """Becomes the group of the survivors, after this one has failed. Blocks until they have formed it.

        Ranks and the size change. Functions that were traced before still use the failed group.

        Raises:
            BootstrapError: this worker cannot go on.
        """
        before = self._membership
        after = before.successor()
        at_exit.unregister(self._communicator.close_at_exit)
        self._finalizer.detach()
        self._use(after)
        lost = [name for name in before.names if name not in self._names]
        return Reformed(lost, time.monotonic() - before.failed_at)

    def subgroup(self, ranks: Sequence[int]) -> Optional[WorkersOfSubgroup]:
        from tf_strategies.native.subgroup import open_subgroup

        number = next(self._subgroups)
        if len(ranks) == 1:
            return SingleWorker(self._names[ranks[0]]) if self.rank in ranks else None
        part = open_subgroup(self._communicator, ranks, number)
        if part is None:
            return None
        names, hosts = ([of[rank] for rank in ranks] for of in (self._names, self.hosts))
        return SubgroupWorkers(part, names, hosts, self.timeout)

    def training(self) -> ContextManager[Callable[[bool], bool]]:
        return self._communicator.training()

    def new_topic(self, compare_on_first: weakref.WeakMethod[Callable[..., Optional[str]]]) -> str:
        topic = (
            f"{self._communicator.epoch} {next(self._topics)}"  # a reader of the last group may still compare
        )

        def ask(*args: Any) -> Optional[str]:
            method = compare_on_first()
            return None if method is None else method(*args)

        self._communicator.set_comparer(topic, ask)
        weakref.finalize(
            compare_on_first().__self__, self._communicator.set_comparer, topic, None
        ).atexit = False
        return topic

    def compare(self, topic: str, key: str, payload: Json) -> None:
        self._communicator.compare(topic, key, payload)

    def stats(self) -> JsonObject:
        return self._communicator.stats()

    def records(self) -> JsonObject:
        return self._communicator.records()

    def join(self, user: object) -> None:
        self._users.add(user)

    def leave(self, user: object) -> None:
        self._users.discard(user)
        if not self._users:
            self.close()

    def close(self) -> None:
        """Leaves the group, even if it is in use. Later collectives fail."""
        at_exit.unregister(self._communicator.close_at_exit)
        self._communicator.close()
        self.abandon()

    def abandon(self) -> None:
        """Does not join the group that the survivors of a failure form."""
        self._membership.abandon()


def _side_by_side(result: tf.Tensor) -> tf.Tensor:
    """Lets a function start this collective when its inputs are ready, in any order with other collectives."""
    if not tf.executing_eagerly():
        compat.run_independently(result.op)
    return result


def _close_elsewhere(membership: Membership) -> None:
    """Closes the group on another thread, because the garbage collector may run on a thread that closing waits for."""
    communicator = membership.communicator
    at_exit.unregister(communicator.close_at_exit)

    def close() -> None:
        communicator.close()
        membership.abandon()

    threading.Thread(target=close, name="tf_strategies close", daemon=True).start()


_open: weakref.WeakValueDictionary[Tuple[object, ...], ConnectedWorkers] = weakref.WeakValueDictionary()


def form_group(
    cluster: Optional[Cluster], options: CommunicationOptions, elastic: Optional[Elastic] = None
) -> WorkerGroup:
    """Connects this process to the other workers of the cluster.

    Returns a `SingleWorker` if there are none, or in an evaluator.

    A process is one worker. While it is in the group of a cluster, further calls return the same group.

    Raises:
        ClusterConfigError: this task does not train.
        OptionsError: the process is already in the group, with other options.
        BootstrapError: the group could not form.
    """
    if cluster is None:
        return SingleWorker()
    if cluster.task.role == "evaluator" and hasattr(tf, "estimator"):
        return SingleWorker()
    if cluster.rank is None:
        raise ClusterConfigError(
            f"TF_CONFIG makes this process {cluster.task}, which takes no part in collective training; run the strategy on the "
            "chief and the workers only"
        )
    if cluster.size == 1:
        return SingleWorker()
    key = (cluster.task, *((role, *listed) for role, listed in sorted(cluster.addresses.items())))
    group = _open.get(key)
    if group is not None and group.usable:
        theirs, ours = (group.options, group.elastic), (options, elastic)
        if theirs != ours:
            raise OptionsError(
                f"{cluster.name_of(cluster.task)} is in the group of a strategy with other options, {theirs}; "
                f"got {ours}; give both the same options, or close() the other strategy first"
            )
        return group
    group = _open[key] = ConnectedWorkers(cluster, options, elastic)
    return group
