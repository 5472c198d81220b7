"""A group of workers that run collectives: formed over the TF_CONFIG addresses, named in ops by an integer."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import weakref
from typing import Any, Callable, Iterator

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies._version import __version__
from tf_strategies.addresses import split_address
from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import ControlPlane
from tf_strategies.errors import BootstrapError, Code
from tf_strategies.native import core, host
from tf_strategies.native.wires import open_wire
from tf_strategies.options import CommunicationOptions
from tf_strategies.secret import read_secret, warn_without_secret
from tf_strategies.texts import described
from tf_strategies.tls import read_tls

_WATCH_SECONDS = 0.5
_JOIN_SECONDS = 5.0
_WHY_LENGTH = 200
_GRAPH_INSTANCES = 1 << 15

_log = logging.getLogger("tf_strategies")

_by_id: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()


def find(communicator_id: int) -> Communicator:
    """Returns the open communicator with this id.

    Raises:
        KeyError: there is none (any more).
    """
    return _by_id[communicator_id]


def _outermost_graph() -> Any:
    """Returns the graph that is run in the end: that of the outermost tf.function, or the one a Session runs."""
    with tf.init_scope():
        if not tf.executing_eagerly():
            return tf.compat.v1.get_default_graph()
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph


def _not_hierarchical(hosts: list[str]) -> str:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(hosts))}
    return (
        "algorithm='hierarchical' needs as many workers, and at least two, on each host, listed host by host in TF_CONFIG; these "
        f"workers are on hosts {', '.join(str(numbers[name]) for name in hosts)}; use algorithm='auto'"
    )


class Communicator:
    """The data plane of one worker, and its link to the control plane.

    Made by `connect`, ended by `close`. Thread-safe.

    Attributes:
        id: what ops name it with.
        rank, size: this worker's place in the group.
    """

    def __init__(self, rank: int, size: int, names: list[str]) -> None:
        self.id = -1
        self.rank = rank
        self.size = size
        self._names = names
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._cause: tuple[int, str] | None = None
        self._control: ControlPlane | None = None
        self._watcher: threading.Thread | None = None
        self._graph_counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._eager_instances: dict[tuple[str, int], int] = {}
        self._next_eager = 0
        self._closed = False

    @classmethod
    def connect(cls, cluster: Cluster, options: CommunicationOptions) -> Communicator:
        """Forms the group: blocks until every worker of the cluster is there.

        Raises:
            BootstrapError: a worker is missing after `options.timeout` seconds, workers disagree, or the transport
                cannot be opened.
            ClusterConfigError: the file of the secret or the certificates of TLS cannot be used.
        """
        if cluster.rank is None:
            raise BootstrapError(
                f"{cluster.name_of(cluster.task)} is not a worker: it takes no part in collectives"
            )
        names = [cluster.name_of(task) for task in cluster.worker_tasks]
        self = cls(cluster.rank, cluster.size, names)
        secret, tls = read_secret(), read_tls(options.security)
        if not secret and tls is None and cluster.size > 1:
            warn_without_secret(cluster.address_of(task) for task in cluster.worker_tasks)
        hosts_of_config = [split_address(cluster.address_of(task))[0] for task in cluster.worker_tasks]
        tls_folder = "" if tls is None else tls.folder
        wire = open_wire(
            names, cluster.rank, hosts_of_config, options.transport, options.timeout, secret, tls_folder
        )
        with contextlib.ExitStack() as undo:
            undo.callback(wire.close)
            agreed = {**options.digest_fields(), "tf_strategies": __version__, "tensorflow": tf.__version__}
            self._control = ControlPlane.join(
                cluster,
                options=agreed,
                timeout=options.timeout,
                secret=secret,
                tls=tls,
                on_abort=self._on_abort,
                describe=self._describe,
                waiting=self._waiting,
            )
            undo.callback(self._control.close)
            mine = {**wire.address(), "host": host.identity()}
            theirs = self._control.exchange(mine, what="transport addresses")
            hosts = [each["host"] for each in theirs]
            ranks_per_host = host.ranks_per_host(hosts)
            if options.algorithm == "hierarchical" and ranks_per_host == 1 and self.size > 1:
                raise BootstrapError(_not_hierarchical(hosts))
            same_host = [each == mine["host"] for each in hosts]
            transport = wire.connect(self.rank, theirs, same_host, self._control.epoch)
            self.id = core.open_communicator(
                transport,
                ranks_per_host=ranks_per_host,
                ranks_here=sum(same_host),
                by_network=not wire.memory or len({(each["host"], each["memory"]) for each in theirs}) > 1,
                peer_names=names,
                algorithm=options.algorithm,
                chunk_bytes=options.chunk_bytes,
                timeout=options.timeout,
            )
            undo.callback(core.close, self.id)
            self._pass_on_cause()
            self._control.barrier("connected")
            undo.pop_all()
        _by_id[self.id] = self
        self._watcher = threading.Thread(target=self._watch, name="tf_strategies failures", daemon=True)
        self._watcher.start()
        return self

    @property
    def usable(self) -> bool:
        """Whether it is open, and nothing has gone wrong in the group as far as this worker has heard."""
        with self._lock:
            return not self._closed and self._cause is None

    def next_instance(self, name: str, *, count: int = 1) -> int:
        """Returns the number of the next collective and reserves the count − 1 numbers after it.

        All workers get the same numbers. `name` is the name of the collective.

        Inside a graph the collectives are numbered from its outermost function, so a worker that traces a function once
        more than another keeps the same numbers. Outside each name has one number, for only one collective is in flight
        there, and TensorFlow keeps a kernel, some 40 KB, for each number that was ever used.
        """
        if tf.executing_eagerly():
            with self._lock:
                if (name, count) not in self._eager_instances:
                    first = self._next_eager if self._next_eager + count <= _GRAPH_INSTANCES else 0
                    self._eager_instances[name, count] = first
                    self._next_eager = first + count
                return _GRAPH_INSTANCES + self._eager_instances[name, count]
        graph = _outermost_graph()
        with self._lock:
            first = self._graph_counts.get(graph, 0)
            self._graph_counts[graph] = first + count
        if first + count > _GRAPH_INSTANCES:
            raise RuntimeError(
                f"one graph has more than {_GRAPH_INSTANCES} collectives; split it into several"
            )
        return first

    def exchange(self, payload: dict[str, Any], *, what: str) -> list[dict[str, Any]]:
        """Gathers a small JSON object from every worker, by rank, over the control plane."""
        if self._control is None:
            raise BootstrapError("the group is closed")
        return self._control.exchange(payload, what=what)

    @contextlib.contextmanager
    def training(self) -> Iterator[Callable[[bool], bool]]:
        """Opens a context for the time of a training.

        It gives a function to call at each place where training can stop.

        The function takes whether this worker wants to stop, and returns whether all workers stop here.
        """
        if self._control is None:
            raise BootstrapError("the group is closed")
        stopping = self._control.stopping
        number = stopping.begin()
        try:
            yield functools.partial(stopping.stops, number)
        finally:
            stopping.end(number)

    def judge(self, topic: str, judge: Any) -> None:
        """Does the same as `ControlPlane.judge`."""
        if self._control is not None:
            self._control.judge(topic, judge)

    def compare(self, topic: str, key: str, payload: Any) -> None:
        """Does the same as `ControlPlane.compare`; nothing when the group is closed or has failed."""
        if self._control is not None and self.usable:
            self._control.compare(topic, key, payload)

    def stats(self) -> dict[str, Any]:
        """Counts since the group was formed: see `tfs_communicator_stats` in ops/communicator/c_api.h."""
        return core.stats(self.id)

    def close(self, why: str = "") -> None:
        """Leaves the group. Outstanding collectives fail; later ones are refused. Bounded in time; safe to repeat.

        Nothing happens in a process forked from the worker's: the group is not its own.

        Args:
            why: what made this worker end, for the message of those that still wait for it; "" for the end of its script.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # The others must hear the reason before their transport notices that this worker has gone.
        core.end_failures(self.id)
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(_JOIN_SECONDS)
        if self._control is not None:
            self._control.close(why)
        core.close(self.id)

    def close_at_exit(self) -> None:
        """Closes the communicator when the interpreter ends.

        The others hear of the exception that ended the script, if one did.
        """
        error = getattr(sys, "last_value", None)
        self.close(described(error, _WHY_LENGTH))
        if error is not None:
            at_exit.end_quickly()

    def _on_abort(self, code: int, message: str) -> None:
        with self._lock:
            if self._cause is None:
                self._cause = (int(code), message)
                at_exit.register(at_exit.end_quickly)
        self._pass_on_cause()

    def _pass_on_cause(self) -> None:
        if self._cause is not None and self.id >= 0:
            core.abort(self.id, *self._cause)

    def _describe(self, instance: int) -> str:
        return core.describe_instance(self.id, instance)

    def _waiting(self) -> tuple[int, float, str] | None:
        waiting = core.oldest_waiting(self.id) if self.id >= 0 else None
        return None if waiting is None else (waiting.instance, waiting.seconds, waiting.description)

    def _watch(self) -> None:
        """Tells the group what the data plane sees go wrong."""
        with contextlib.suppress(KeyError):
            while True:
                failure = core.wait_failure(self.id, timeout=_WATCH_SECONDS)
                if failure is not None and self._control is not None and failure.code != Code.CANCELLED:
                    self._control.report_failure(
                        failure.code, failure.message, failure.instance, failure.peer
                    )
