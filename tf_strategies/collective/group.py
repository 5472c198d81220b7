"""Implements the group of a strategy's workers: a single process, or several processes with native collectives."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    FrozenSet,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
)

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies.cluster import Cluster
from tf_strategies.collective.communicator_workers import CommunicatorWorkers, SubgroupWorkers
from tf_strategies.collective.kept_functions import KeptFunctions
from tf_strategies.collective.single_worker import SingleWorker
from tf_strategies.collective.unconnected import Unconnected
from tf_strategies.collective.worker_group import Place, WorkerGroup, WorkersOfSubgroup
from tf_strategies.errors import BootstrapError, ClusterConfigError, Code, OptionsError
from tf_strategies.options import CommunicationOptions, Elastic
from tf_strategies.types import Json, JsonObject

if TYPE_CHECKING:
    from tf_strategies.native.communicator import Communicator
    from tf_strategies.native.membership import Membership

__all__ = ["ConnectedWorkers", "form_group"]


_END_SECONDS = 10.0
_CLOSE_SECONDS = 20.0  # more than rank 0 waits for the others
_POLL_SECONDS = 0.02


class Reformed(NamedTuple):
    """Describes how survivors have formed a group again.

    Attributes:
        lost: the names of the workers that were lost.
        left: the names of those that have left in good order.
        joined: the names of those that are new.
        seconds: since the failure, or since this worker has begun to wait for the others.
    """

    lost: List[str]
    left: List[str]
    joined: List[str]
    seconds: float


class ConnectedWorkers(CommunicatorWorkers):
    """The group of a cluster.

    It is closed when its last user leaves, when this object is deleted, or when the interpreter ends.
    """

    _communicator: Union[Communicator, Unconnected]

    def __init__(
        self, cluster: Cluster, options: CommunicationOptions, elastic: Optional[Elastic] = None
    ) -> None:
        from tf_strategies.native import membership

        self.options = options
        self.elastic = elastic
        self.generation = None if elastic is None else 0
        self._cluster = cluster
        self._functions: Optional[KeptFunctions] = None
        self._keeps_functions = False
        if elastic is not None:
            self._functions = KeptFunctions(lambda: self._place, self._place_in_collectives)
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._membership: Optional[Membership] = None
        first = membership.form_first(cluster, options, elastic)
        if isinstance(first, Cluster):
            self._cluster = first
            self.is_newcomer = self.is_behind = True
            self._start(Unconnected(cluster), [cluster.name_of(task) for task in cluster.worker_tasks])
        else:
            self._use(first)
        if self._functions is not None:
            self._functions.begin()

    def _use(self, membership: Membership) -> None:
        self._membership = membership
        self._start(membership.communicator, membership.names)
        at_exit.register(membership.communicator.close_at_exit)
        self._finalizer = weakref.finalize(self, _close_elsewhere, membership)
        self._finalizer.atexit = False

    def _start(self, communicator: Union[Communicator, Unconnected], names: Sequence[str]) -> None:
        self._topics = itertools.count()
        self._subgroups = itertools.count()
        CommunicatorWorkers.__init__(self, communicator, names, communicator.hosts, self.options.timeout)

    @property
    def _place(self) -> Place:
        return super().now

    @property
    def now(self) -> Place:
        if self._functions is None or not (self._keeps_functions and tf.inside_function()):
            return self._place
        return self._functions.made_for()

    def keep_functions(self) -> None:
        self._keeps_functions = True

    @property
    def rank(self) -> int:
        return (self._place if self._functions is None else self._functions.place.read()).rank

    @property
    def size(self) -> int:
        return (self._place if self._functions is None else self._functions.place.read()).size

    def rank_in_graph(self) -> Union[int, tf.Tensor]:
        return self._place.rank if self._functions is None else self._functions.place.in_graph().rank

    def size_in_graph(self) -> Union[int, tf.Tensor]:
        return self._place.size if self._functions is None else self._functions.place.in_graph().size

    def _place_in_collectives(self) -> Place:
        return Place(0, 1) if self._rehearses else self._place

    def _begin(self, name: str, content: Callable[[], str]) -> None:
        super()._begin(name, content)
        if self._functions is not None:
            self._functions.collectives.add(name, content)

    def suiting_functions(self, *, has_newcomers: bool) -> Optional[List[str]]:
        return None if self._functions is None else self._functions.suiting(has_newcomers=has_newcomers)

    def reuse_functions(self, can: bool) -> None:
        """Lets functions that were traced for former groups use this one from now on, or never again.

        Args:
            can: whether they can be used. It must be the same on all workers.
        """
        if self._functions is None:
            return
        if can:
            self._communicator.stand_for(self._functions.change())
        else:
            self._functions.forget()
            self._functions.begin()

    @property
    def can_reform(self) -> bool:
        """Whether the group has ended, and its workers form another one."""
        found = self._membership
        return found is not None and not self._communicator.usable and found.is_succeeded

    def reform(self) -> Reformed:
        """Becomes the group that follows this one, which has ended. Blocks until it has formed.

        Ranks and the size change. Functions that were traced before still use the last group, until `reuse_functions`.

        Raises:
            BootstrapError: this worker cannot go on.
        """
        before = self._membership
        if before is None:
            raise BootstrapError("this worker has not joined the others")
        after = before.successor()
        at_exit.unregister(before.communicator.close_at_exit)
        if self._functions is not None:
            former = before.communicator
            self._functions.add_former(former.id, has_functions=former.has_functions)
        self._finalizer.detach()
        self._use(after)
        self.generation = (self.generation or 0) + 1
        left = [before.names[rank] for rank in sorted(before.communicator.leavers)]
        lost = [name for name in before.names if name not in (*self._names, *left)]
        joined = [name for name in self._names if name not in before.names]
        return Reformed(lost, left, joined, time.monotonic() - before.failed_at)

    def join_fit(self, number: int) -> Reformed:
        """Joins the others in a call of `fit`, from 1. It may wait as long as they train.

        Raises:
            BootstrapError: they refuse this worker, or have ended.
        """
        from tf_strategies.native.membership import Membership

        start = time.monotonic()
        if self.elastic is None:
            raise BootstrapError("only a group with elastic= takes newcomers")
        self._use(Membership.join(self._cluster, self.options, self.elastic, number))
        self.is_newcomer = False
        self.generation = (self.generation or 0) + 1
        return Reformed([], [], [self._names[self.rank]], time.monotonic() - start)

    @contextlib.contextmanager
    def rehearsing(self) -> Iterator[None]:
        """Opens a context in which this newcomer takes part in collectives alone, to trace the functions of the others' group.

        What is agreed on eagerly is what this worker says. The functions can be used when it has joined.
        """
        from tf_strategies.collective.rehearsing import Rehearsing

        before = self._communicator
        self._communicator = alone = Rehearsing(self._cluster, self.options)
        self._rehearses = True
        if self._functions is not None:
            self._functions.begin()
        try:
            yield
        finally:
            self._rehearses, self._communicator = False, before
            alone.close()
            if self._functions is not None:
                self._functions.add_former(alone.id, has_functions=alone.has_functions)

    def step_ended(self) -> None:
        """Notes the end of a step of `fit`.

        Raises:
            BootstrapError: another group follows this one, although no collective of this worker has failed yet.
        """
        self._communicator.step_ended()
        if self.can_reform:
            raise BootstrapError(self.failure)

    def blame_newcomers(self, why: str) -> None:
        """Ends a group whose workers differ, so that those that joined last leave it. Blocks for a limited time."""
        self._communicator.report_failure(int(Code.MISMATCH), why, -1)
        self._wait_for_end()

    def let_leave(self, ranks: FrozenSet[int]) -> None:
        """Ends the group, so that some ranks leave it and the others form the next one. All ranks must call it.

        Raises:
            BootstrapError: the group has not ended within a limited time.
        """
        self._communicator.let_leave(ranks)
        self._wait_for_end()
        if self.rank in ranks and self._membership is not None:
            self._membership.wait_until_closed(_CLOSE_SECONDS)
        if self.usable:
            raise BootstrapError(
                f"{self._names[0]} did not end the group within {_END_SECONDS:g} s, although others leave it; see its log"
            )

    def has_ended(self) -> bool:
        """Returns True if the group has failed. Collectives of this worker then fail, too."""
        if self._communicator.has_failed:
            self._wait_for_end()
        return not self.usable

    def _wait_for_end(self) -> None:
        """Waits until the group has ended, but for a limited time."""
        end = time.monotonic() + _END_SECONDS
        while self.usable and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def leave_because(self, why: str) -> None:
        """Leaves the group at once, so that the others go on. `why` is the error of this worker."""
        self._communicator.close(why)

    def caught_up(self) -> None:
        """Notes that this worker has all variables of the others, and makes further ones together with them."""
        self.is_behind = False

    def admit(self, fit: Optional[int]) -> None:
        """Lets newcomers join this call of `fit` from now on; None: none. All workers must be in this call."""
        self._communicator.admit(fit)

    def subgroup(self, ranks: Sequence[int]) -> Optional[WorkersOfSubgroup]:
        from tf_strategies.native.subgroup import open_subgroup

        self._require_connection("subgroup")
        number = next(self._subgroups)
        if len(ranks) == 1:
            return SingleWorker(self._names[ranks[0]]) if self.rank in ranks else None
        part = open_subgroup(cast("Communicator", self._communicator), ranks, number)
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

    def abandon(self, why: str = "") -> None:
        """Does not join the group that follows this one; `why` as for `Membership.abandon`."""
        if self._membership is not None:
            self._membership.abandon(why)


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
    if cluster.size == 1 and (elastic is None or elastic.max_workers in (None, 1)):
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
