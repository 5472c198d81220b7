"""A group of workers that run collectives. Workers form it over their TF_CONFIG addresses."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies._version import __version__
from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import ControlPlane, Pace
from tf_strategies.control_plane.messages import Wait
from tf_strategies.control_plane.succession import FIRST, Succession
from tf_strategies.errors import BootstrapError
from tf_strategies.native import core, host, record_file
from tf_strategies.native.data_plane import open_data_plane
from tf_strategies.native.endpoints import Settings, open_endpoint
from tf_strategies.native.instances import InstanceNumbers
from tf_strategies.native.settings import settings_of
from tf_strategies.native.waits import waited_for_batches
from tf_strategies.native.watch import Watch
from tf_strategies.options import CommunicationOptions, Elastic, heartbeat_timeout_of
from tf_strategies.texts import described
from tf_strategies.types import Json, JsonObject

if TYPE_CHECKING:
    from tf_strategies.native.solo import SoloCommunicator
    from tf_strategies.native.subgroup import Subcommunicator

_WHY_LENGTH = 200
_VERDICT_SECONDS = 2.0
_DECISION_SECONDS = 5.0  # how long the control plane may take to decide, once it knows who is lost

_by_id: weakref.WeakValueDictionary[int, Communicator | SoloCommunicator | Subcommunicator] = (
    weakref.WeakValueDictionary()
)


def make_findable(communicator: Communicator | SoloCommunicator | Subcommunicator) -> None:
    """Lets `find` return a communicator as long as there is a reference to it."""
    _by_id[communicator.id] = communicator


def find(communicator_id: int) -> Communicator | SoloCommunicator | Subcommunicator:
    """Returns the open communicator with this id.

    Raises:
        KeyError: there is no open communicator with this id.
    """
    return _by_id[communicator_id]


def agreed_options(options: CommunicationOptions, elastic: Elastic | None) -> dict[str, object]:
    """Returns what must be equal on all workers beside the cluster, by name."""
    return {
        **options.digest_fields(),
        **({} if elastic is None else elastic.digest_fields()),
        "tf_strategies": __version__,
        "tensorflow": tf.__version__,
    }


class Communicator:
    """Holds the data plane of one worker, and its connection to the control plane.

    It is made by `connect` and ended by `close`. It is thread-safe.

    Args:
        rank: this worker's rank.
        size: the number of workers.
        names: the names of the workers by rank, "worker 1 (10.0.0.3:2222)".

    Attributes:
        id: the number that identifies the communicator in operations; -1 before it is connected.
        rank: this worker's rank.
        size: the number of workers.
        hosts: the identity of each worker's host, by rank; see `host.identity`. Empty before it is connected.
        settings: what this worker knows of the others; known when it is connected, as `options`.
        options: the options of communication.
        verdict_timeout: the number of seconds that a failure which this worker sees waits for the decision of the group.
    """

    def __init__(self, rank: int, size: int, names: list[str]) -> None:
        self.id = -1
        self.rank = rank
        self.size = size
        self.hosts: tuple[str, ...] = ()
        self.settings: Settings
        self.options: CommunicationOptions
        self.verdict_timeout = _VERDICT_SECONDS
        self._on_failed: Callable[[Communicator], object] | None = None  # until it has been called
        self._names = names
        self._records = record_file.RecordWriter(names[rank].partition(" (")[0])
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._cause: tuple[int, str] | None = None
        self._control: ControlPlane | None = None
        self._watch: Watch | None = None
        self._instances = InstanceNumbers()
        self._closed = False
        self._parts: set[Subcommunicator] = set()  # the open subgroups

    @classmethod
    def connect(
        cls,
        cluster: Cluster,
        options: CommunicationOptions,
        *,
        within: float | None = None,
        on_failed: Callable[[Communicator], object] | None = None,
        elastic: Elastic | None = None,
        succession: Succession = FIRST,
    ) -> Communicator:
        """Forms the group. It blocks until every worker of the cluster has joined.

        Args:
            cluster: the cluster. This task must be one of its `worker_tasks`.
            options: the options. They must be equal on all workers.
            within: how long it waits for the other workers, in seconds; `options.timeout` by default.
            on_failed: is called once if the group fails after it has formed. It must not block.
            elastic: how the group is followed by another one; None if it is not. It must be equal on all workers.
            succession: how the group follows another one.

        Returns:
            The connected communicator.

        Raises:
            BootstrapError: a worker is missing after `options.timeout` seconds, workers have different options, or
                the transport cannot be opened.
            PerhapsFormedError: the group may have formed without this worker.
            ClusterConfigError: the file of the secret or the certificates of TLS cannot be used.
        """
        settings, tls = settings_of(cluster, options)
        self = cls(settings.rank, cluster.size, list(settings.names))
        self.settings, self.options = settings, options
        heartbeat_timeout = heartbeat_timeout_of(options, elastic)
        if elastic is not None:  # who trains on must know who is lost, also if rank 0 is silent
            self.verdict_timeout = heartbeat_timeout + _DECISION_SECONDS
        endpoint = open_endpoint(options.transport, settings)
        with contextlib.ExitStack() as undo:
            undo.callback(endpoint.close)
            self._control = ControlPlane.join(
                cluster,
                options=agreed_options(options, elastic),
                timeout=options.timeout if within is None else within,
                heartbeat_timeout=heartbeat_timeout,
                secret=settings.secret,
                tls=tls,
                on_abort=self._on_abort,
                describe=self._describe,
                waiting=self._waiting,
                pace=self._pace,
                waited_for_batches=self._waited_for_batches,
                succession=None if elastic is None else succession,
                most=None if elastic is None else elastic.max_workers,
            )
            undo.callback(self._control.close)
            mine = {**endpoint.address(), "host": host.identity()}
            theirs = self._control.exchange(mine, what="transport addresses")
            self.hosts = tuple(each["host"] for each in theirs)
            self.id = open_data_plane(
                endpoint, theirs, settings, options, self._control.epoch, self.verdict_timeout
            )
            undo.callback(core.close, self.id)
            self._pass_on_cause()
            self._control.complete()
            undo.pop_all()
        make_findable(self)
        self._watch = Watch(self.id, self._on_failure, self.write_records)
        self._watch.start()
        with self._lock:
            self._on_failed = on_failed
        self._tell_of_failure()
        return self

    @property
    def usable(self) -> bool:
        """True if the communicator is open and this worker knows of no failure of the group."""
        with self._lock:
            return not self._closed and self._cause is None

    @property
    def epoch(self) -> int:
        """The number of the group, which no other group has; 0 before it is connected."""
        return 0 if self._control is None else self._control.epoch

    @property
    def has_failed(self) -> bool:
        """True if the group has failed, also when outstanding collectives have not been told yet."""
        return self._control is not None and self._control.failed() is not None

    @property
    def failure(self) -> str:
        """The reason why the group has failed, or ""."""
        with self._lock:
            return "" if self._cause is None else self._cause[1]

    @property
    def lost(self) -> frozenset[int]:
        """The ranks without which the others can go on, after the group has failed; see `Failure`."""
        failure = None if self._control is None else self._control.failed()
        return frozenset() if failure is None else failure.lost

    @property
    def joins(self) -> tuple[str, ...]:
        """The tasks for whose sake the group has ended, and that join the next one, "worker 2"."""
        failure = None if self._control is None else self._control.failed()
        return () if failure is None else failure.joins

    @property
    def workers(self) -> tuple[str, ...]:
        """The addresses of all workers that the next group knows, after the group has ended; none if they are the same."""
        failure = None if self._control is None else self._control.failed()
        return () if failure is None else failure.workers

    @property
    def leavers(self) -> frozenset[int]:
        """The ranks for whose sake the group has ended, and that leave in good order."""
        failure = None if self._control is None else self._control.failed()
        return frozenset() if failure is None else failure.leavers

    def admit(self, fit: int | None) -> None:
        """Does the same as `ControlPlane.admit`."""
        if self._control is not None:
            self._control.admit(fit)

    def step_ended(self) -> None:
        """Does the same as `ControlPlane.step_ended`."""
        if self._control is not None:
            self._control.step_ended()

    def let_leave(self, ranks: frozenset[int]) -> None:
        """Does the same as `ControlPlane.let_leave`."""
        if self._control is not None:
            self._control.let_leave(ranks)

    def next_instance(self, name: str, *, count: int = 1) -> int:
        """Returns the number of the next collective, and reserves the count − 1 numbers after it.

        All workers get the same numbers; see `InstanceNumbers`.

        Args:
            name: the name of the collective.
            count: how many numbers the collective needs.

        Raises:
            RuntimeError: the graph has too many collectives.
        """
        return self._instances.next(name, count)

    @property
    def has_functions(self) -> bool:
        """True if functions have collectives whose numbers depend on what was traced before; see `InstanceNumbers`."""
        return self._instances.has_functions

    def stand_for(self, former: Sequence[int]) -> None:
        """Lets operations that were made for closed communicators use this one, until it is closed.

        Args:
            former: their ids.
        """
        for each in former:
            core.also_call(each, self.id)
            _by_id[each] = self

    def exchange(self, payload: JsonObject, *, what: str) -> list[JsonObject]:
        """Gathers a small JSON object from every worker over the control plane; see `ControlPlane.exchange`."""
        if self._control is None:
            raise BootstrapError("the group is closed")
        return self._control.exchange(payload, what=what)

    def adopt(self, part: Subcommunicator) -> None:
        """Lets a `Subcommunicator` fail and end with this communicator."""
        with self._lock:
            self._parts.add(part)
        make_findable(part)
        self._pass_on_cause()

    def release(self, part: Subcommunicator) -> None:
        """Forgets a `Subcommunicator` that is closed."""
        with self._lock:
            self._parts.discard(part)

    def report_failure(self, code: int, message: str, peer: int) -> None:
        """Reports a failure between workers of a subgroup; see `ControlPlane.report_failure`."""
        if self._control is not None:
            self._control.report_failure(code, message, peer=peer)

    def training(self) -> contextlib.AbstractContextManager[Callable[[bool], bool]]:
        """Does the same as `Stopping.training`."""
        if self._control is None:
            raise BootstrapError("the group is closed")
        return self._control.stopping.training()

    def set_comparer(self, topic: str, comparer: Callable[..., str | None] | None) -> None:
        """Does the same as `ControlPlane.set_comparer`."""
        if self._control is not None:
            self._control.set_comparer(topic, comparer)

    def compare(self, topic: str, key: str, payload: Json) -> None:
        """Does the same as `ControlPlane.compare`, or nothing if the group is closed or has failed."""
        if self._control is not None and self.usable:
            self._control.compare(topic, key, payload)

    def stats(self) -> JsonObject:
        """Returns counters since the group was formed; see `tfs_communicator_stats` in ops/communicator/c_api.h."""
        return core.stats(self.id)

    def records(self) -> JsonObject:
        """Returns the last collectives of this worker; see `tfs_communicator_records`. Empty if it is not connected."""
        return core.records(self.id) if self.id >= 0 else {}

    def write_records(self, failure: str = "") -> Path | None:
        """Begins to write the last collectives of this worker to a file; see `RecordWriter`.

        Args:
            failure: the reason why the group has failed, or "".

        Returns:
            The path, or None if there is no file.
        """
        records = self.records()
        if not records:
            return None
        offset = None if self._control is None else self._control.clock_offset
        with self._lock:
            parts = sorted(self._parts, key=lambda part: part.number)
        content = {
            "names": self._names,
            "hosts": self.hosts,
            "process": os.getpid(),
            "failure": failure,
            "subgroups": [part.records() for part in parts],
        }
        return self._records.begin(self.epoch, {**content, "clock_offset_ns": offset, **records})

    def close(self, why: str = "") -> None:
        """Leaves the group. Outstanding and later collectives fail.

        It returns within a limited time, and may be called again. In a forked child of the worker's process it does
        nothing.

        Args:
            why: the error that ended this worker, for the messages of workers that wait for it; "" if there was none.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            parts, failed = list(self._parts), self._cause is not None
        if record_file.asked_for() and not failed:
            self.write_records()
        self._records.finish()
        # The other workers must receive the reason before their transport notices that this worker has gone.
        for part in [self, *parts]:
            core.end_failures(part.id)
        if self._watch is not None:
            self._watch.join()
        if self._control is not None:
            self._control.close(why)
        for part in parts:
            part.close()
        core.close(self.id)

    def close_at_exit(self) -> None:
        """Closes the communicator when the interpreter ends.

        If an exception has ended the script, the other workers receive it as the reason.
        """
        error = getattr(sys, "last_value", None)
        self.close(described(error, _WHY_LENGTH))
        if error is not None:
            at_exit.end_quickly()

    def _on_abort(self, code: int, message: str) -> None:
        records = None if self.joins or self.leavers else self.write_records(message)
        if records is not None:
            message = f"{message} (see its last collectives by `tfs-trace {records.parent}`)"
        with self._lock:
            if self._cause is None:
                self._cause = (int(code), message)
                at_exit.register(at_exit.end_quickly)
        self._pass_on_cause()
        self._tell_of_failure()

    def _tell_of_failure(self) -> None:
        with self._lock:
            if self._cause is None:
                return
            tell, self._on_failed = self._on_failed, None
        if tell is not None:
            tell(self)

    def _pass_on_cause(self) -> None:
        with self._lock:
            cause, ids = self._cause, [each.id for each in (self, *self._parts) if each.id >= 0]
        for each in ids if cause is not None else []:
            core.abort(each, *cause)

    def _describe(self, instance: int) -> str:
        return core.describe_instance(self.id, instance)

    def _waiting(self) -> Wait | None:
        waiting = core.oldest_waiting(self.id) if self.id >= 0 else None
        if waiting is None and self._control is not None:
            # A subgroup that a worker has left cannot go on. Otherwise its waits do not concern the group.
            with self._lock:
                ids = [part.id for part in self._parts if not self._control.left.isdisjoint(part.ranks)]
            waiting = next(filter(None, map(core.oldest_waiting, ids)), None)
        if waiting is None:
            return None
        return Wait(waiting.instance, waiting.seconds, waiting.quiet, waiting.description)

    def _pace(self) -> Pace | None:
        pace = core.pace(self.id, self.rank) if self.id >= 0 else None
        if pace is None:
            return None
        networks = list(map(host.network_of, self.hosts))
        to_others = (each for each in pace.wires if networks[each.receiver] != networks[self.rank])
        return pace._replace(wires=tuple(to_others))

    def _waited_for_batches(self, seconds: float) -> float | None:
        return waited_for_batches(self.records(), seconds)

    def _on_failure(self, failure: core.Failure) -> None:
        if self._control is not None:
            self._control.report_failure(failure.code, failure.message, failure.instance, failure.peer)
