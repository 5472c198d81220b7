"""Connects to the servers in other processes through TensorFlow's distributed runtime."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from typing import Callable, ContextManager, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies import at_exit
from tf_strategies._tf import compat
from tf_strategies.addresses import split_address
from tf_strategies.cluster import Cluster, Task
from tf_strategies.errors import BootstrapError, ClusterConfigError
from tf_strategies.native.channel import Channel
from tf_strategies.options import ParameterServerOptions
from tf_strategies.parameter_server.cluster import heartbeat
from tf_strategies.parameter_server.cluster.failure_detector import FailureDetector
from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.cluster.protection import Protection
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.cluster.transport import Transport, open_channels
from tf_strategies.parameter_server.cluster.used_variables import UsedVariables
from tf_strategies.parameter_server.cluster.variable_lists import list_name
from tf_strategies.parameter_server.errors import ServerLostError
from tf_strategies.types import Result, Structure, TensorLike

__all__ = ["ConnectedServers"]

_RETRY_SECONDS = 0.5
_UNKNOWN_TENSOR = "Unable to find the relevant tensor remote_handle"
_MOST_SPOILT = 5
_PASSING = tf.errors.UnavailableError, tf.errors.AbortedError, RuntimeError
_PATIENCE_SECONDS = 0.4
_PATIENCE_WITH_COPIES_SECONDS = 10.0  # on a busy machine a call that is not stuck takes seconds
_REMEDY = "start all servers and workers again. If there is a checkpoint, training continues from it"
_START_AGAIN = f", and its variables are lost. Look at its log, then {_REMEDY}"
_WAITS = (
    ". Look at its log, and start it again within {timeout:g} s: `fit`, `evaluate` and `predict` then go on with the copy of its "
    f"variables that the next server has. Other loops end: for them {_REMEDY}"
)
_HANGS = (
    ". Its connections are open: it hangs, or the network is cut. A call that waits for it cannot be cancelled. Look at its log, "
    "then {remedy}. ParameterServerOptions(heartbeat_timeout=…) gives it more time than {timeout:g} s"
)


class ConnectedServers(Servers):
    """The `ps` tasks of a cluster, as one training task sees them.

    Args:
        cluster: the cluster of TF_CONFIG. This process must be a task that trains.
        name: a name for the state that the workers share.
        described: the options that must be equal on all workers, as text.
        options: the options of the strategy.
        replicas: in how many places variables are held. With 2, training goes on when a lost server has started again.

    Raises:
        BootstrapError: a server does not answer, this task's address cannot be used, or another worker has other options.
    """

    def __init__(
        self, cluster: Cluster, name: str, described: str, options: ParameterServerOptions, *, replicas: int
    ) -> None:
        self.name = name
        self._cluster, self._transport_option, self._replicas = cluster, options.transport, replicas
        self._returns, self._recovery = 0, threading.Lock()
        self._used = [UsedVariables() for _ in cluster.addresses["ps"]]
        self.rank = cluster.rank or 0
        self.size = cluster.size
        self.timeout = options.timeout
        self._tasks = [Task("ps", index) for index in range(len(cluster.addresses["ps"]))]
        self._worker_names = [cluster.name_of(task) for task in cluster.worker_tasks]
        self.server_names = [cluster.name_of(task) for task in self._tasks]
        protection = self._protection = _connect(cluster, options.timeout)
        own = cluster.task
        self.session_target = f"grpc://{cluster.address_of(own)}"
        self.device = f"/job:{own.role}/replica:0/task:{own.index}/device:CPU:0"
        self.devices = [f"/job:ps/replica:0/task:{task.index}/device:CPU:0" for task in self._tasks]
        try:
            self.membership = Membership(
                name,
                self.devices,
                rank=self.rank,
                names=self._worker_names,
                options=described,
                timeout=options.timeout,
            )
        except tf.errors.InvalidArgumentError as error:
            raise BootstrapError(error.message) from None
        self.transport = Transport(self.device, self._open_channels())
        self._failure_detector = FailureDetector(
            list(zip(self.server_names, cluster.addresses["ps"])),
            _processes,
            self.transport.fail,
            through_proxy=protection.has_gateway,
            heartbeat_timeout=options.heartbeat_timeout,
            patience=_PATIENCE_SECONDS if replicas == 1 else _PATIENCE_WITH_COPIES_SECONDS,
            remedy=_START_AGAIN if replicas == 1 else _WAITS.format(timeout=options.timeout),
            remedy_of_silence=_HANGS.format(timeout=options.heartbeat_timeout, remedy=_REMEDY),
        )
        self._closed = False
        at_exit.register(self._leave_at_exit)

    def detecting_failures(self) -> ContextManager[None]:
        if self._replicas > 1 and self._failure_detector.has_lost:
            with self._recovery:
                if self._failure_detector.has_lost:
                    self._recover()
            self._complete_return()
        return self._failure_detector.watch()

    def _open_channels(self) -> Dict[str, Channel]:
        cluster, own = self._cluster, self._cluster.task
        return open_channels(
            list(zip(self.server_names, cluster.addresses["ps"], self.devices)),
            own=cluster.name_of(own),
            my_host=split_address(cluster.address_of(own))[0],
            transport=self._transport_option,
            timeout=self.timeout,
            protection=self._protection,
        )

    def call(self, function: Callable[..., Result], *args: Structure) -> Result:
        spoilt = 0
        while True:
            generation = self.generation
            try:
                return self.attempt(function, *args)
            except tf.errors.OpError as error:
                # TensorFlow may tell a server to forget a tensor of its earlier process, and end the calls of that moment.
                is_spoilt = bool(generation) and _UNKNOWN_TENSOR in error.message
                spoilt += is_spoilt
                if (not is_spoilt or spoilt > _MOST_SPOILT) and not self.recover(error, generation):
                    raise

    def attempt(self, function: Callable[..., Result], *args: Structure) -> Result:
        with self._failure_detector.watch():
            self._list_used()
            return self._failure_detector.call(function, *args)

    @property
    def generation(self) -> Optional[int]:
        return None if self._replicas == 1 else self._returns

    def recover(self, error: Exception, generation: Optional[int]) -> bool:
        if generation is None or not isinstance(error, tf.errors.OpError):
            return False
        if isinstance(error, tf.errors.OutOfRangeError):  # the data have ended
            return False
        with self._recovery:
            if generation == self._returns and not self._failure_detector.find_lost():
                return False
            _forget_tensors(error)
            if generation == self._returns:
                self._recover()
        self._complete_return()
        return True

    def _complete_return(self) -> None:
        for used in self._used:
            for name, variable, initial in self.call(used.lost_recently_made):  # a server may be lost again
                self._initialize(variable, initial, name)
        self.on_return()

    def _recover(self) -> None:
        lost = self._failure_detector.find_lost()
        self.last_lost = self._failure_detector.last_lost
        own = self._cluster.name_of(self._cluster.task)
        logging.warning("%s: %s", own, lost)
        deadline = time.monotonic() + self.timeout
        while True:
            processes = self._wait_for_servers(lost, own, deadline)
            self._failure_detector.begin_again(processes)
            try:
                self._connect_again(processes)
                reason: object = self._failure_detector.find_lost()  # one may have started again meanwhile
                if not reason:
                    break
            except (tf.errors.OpError, RuntimeError) as error:
                passes = isinstance(error, _PASSING) and not isinstance(error, ServerLostError)
                if not passes and not self._failure_detector.find_lost():
                    raise
                reason = error
            if time.monotonic() > deadline:
                raise ServerLostError(f"{lost}. {own} could not connect to it again: {reason}")
            logging.warning("%s could not connect to its servers again, and retries: %s", own, reason)
            time.sleep(_RETRY_SECONDS)
        self._returns += 1
        logging.warning("%s: all servers answer again", own)

    def _wait_for_servers(self, lost: str, own: str, deadline: float) -> List[bytes]:
        servers = list(zip(self.server_names, self._cluster.addresses["ps"]))
        try:
            return heartbeat.wait_until_all_are_ready(
                own, servers, max(0.0, deadline - time.monotonic()), self._protection
            )
        except BootstrapError as error:
            raise ServerLostError(f"{lost}. {error}") from error

    def _connect_again(self, processes: Sequence[bytes]) -> None:
        _join_cluster(self._cluster, processes)
        with self._failure_detector.watch():  # a server may hang meanwhile
            self._let_servers_meet()
        for server, used in enumerate(self._used):
            for name, variable in used.alive():
                compat.renew_handle(variable, self._handle(server, name, variable.shape, variable.dtype))
            if used.list is not None:
                compat.renew_handle(
                    used.list, self._handle(server, list_name(self.rank), tf.TensorShape([]), tf.string)
                )
                if not used.has_come_back():
                    raise ServerLostError(
                        f"{self.server_names[server]} came back without its variables, because no other server had "
                        f"a whole copy of them; {_REMEDY}"
                    )
                used.has_further = True  # the list may be that of a moment before
            used.write_entries()
        self.membership.join()
        self.transport.renew(self._open_channels())

    def _let_servers_meet(self) -> None:
        """Sends a number from each server to each other one.

        For a second after a failed attempt, gRPC refuses calls of one server to another that has started again meanwhile.

        Raises:
            UnavailableError: a server cannot reach another one yet.
        """
        numbers = []
        for device in self.devices:
            with tf.device(device):
                numbers.append(tf.ones([]))
        for device in self.devices:
            with tf.device(device):
                tf.add_n(numbers).numpy()

    def shared_variable(self, server: int, name: str, initial: tf.Tensor) -> tf.Variable:
        self._used[server].note_of_model(name)
        variable = super().shared_variable(server, name, initial)
        if self._replicas > 1:
            self._used[server].note_value(name, initial)
        return variable

    def named_variable(self, server: int, name: str, shape: tf.TensorShape, dtype: tf.DType) -> tf.Variable:
        make = super().named_variable
        if self._replicas == 1:
            return make(server, name, shape, dtype)
        variable = self.call(lambda: make(server, name, shape, dtype))
        self._used[server].add(name, variable)
        return variable

    def write_entry(self, server: int, variable: tf.Variable, value: TensorLike) -> None:
        if self._replicas > 1:
            self._used[server].note_entry(variable, value)
        super().write_entry(server, variable, value)

    def _list_used(self) -> None:
        """Tells servers which variables this worker uses, so that they copy them."""
        for server, used in enumerate(self._used):
            if used.has_further:
                if used.list is None:
                    name = list_name(self.rank)
                    used.list = super().named_variable(server, name, tf.TensorShape([]), tf.string)
                used.list.assign(used.described())
                used.has_further = False

    def require_all(self) -> None:
        self._failure_detector.require_all()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        at_exit.unregister(self._leave_at_exit)
        self._failure_detector.stop()
        self.transport.close()
        self._failure_detector.call_last(lambda: self.membership.leave(finished=True))

    def agree(self, what: str, text: str) -> None:
        try:
            self.call(self.membership.agree, what, text)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(error.message) from None

    def name_of_worker(self, rank: int) -> str:
        return self._worker_names[rank]

    def _leave_at_exit(self) -> None:
        """Tells the servers that this worker has finished, when the interpreter ends.

        After an error that ended the script it does nothing, so that the servers treat this worker as lost.
        """
        if getattr(sys, "last_value", None) is not None:
            self._failure_detector.stop()
            at_exit.end_quickly()
            return
        try:
            self.close()
        except tf.errors.OpError as error:
            logging.warning(
                "%s could not tell the servers that it has finished: %s",
                self.name_of_worker(self.rank),
                error.message,
            )


def _forget_tensors(error: Optional[BaseException]) -> None:
    """Lets go of tensors on servers that failed calls hold: the next process of the server does not know them."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()


_connected: Optional[Tuple[Cluster, Protection]] = None
_processes: List[bytes] = []  # identify those of the servers to which TensorFlow is connected


def _connect(cluster: Cluster, timeout: float) -> Protection:
    """Connects TensorFlow to the servers' devices, once in a process. Returns the protection of this task."""
    global _connected
    if _connected is not None:
        before, protection = _connected
        if (before.addresses, before.task) != (cluster.addresses, cluster.task):
            raise ClusterConfigError(
                f"this process is {before.name_of(before.task)} of another cluster already, and TensorFlow can be connected to "
                "only one cluster; start another process"
            )
        return protection
    protection = Protection(cluster)
    try:
        _connect_tensorflow(cluster, timeout, protection)
        protection.cover()
    except BaseException:
        protection.close()
        raise
    _connected = cluster, protection
    return protection


def _connect_tensorflow(cluster: Cluster, timeout: float, protection: Protection) -> None:
    own = cluster.name_of(cluster.task)
    servers = [
        (cluster.name_of(Task("ps", index)), address) for index, address in enumerate(cluster.addresses["ps"])
    ]
    processes = heartbeat.wait_until_all_are_ready(own, servers, timeout, protection)
    protection.begin()
    try:
        _join_cluster(cluster, processes)
        tf.config.list_logical_devices()  # starts the server of this task
    except (tf.errors.OpError, RuntimeError) as error:
        raise BootstrapError(
            f"{own} could not connect to its servers: {error}; check that no other process listens on its "
            f"address, and make the strategy before any other use of TensorFlow"
        ) from error


def _join_cluster(cluster: Cluster, processes: Sequence[bytes]) -> None:
    """Connects TensorFlow to the servers as they are now. The server of this task starts at the first time.

    Args:
        cluster: the cluster of TF_CONFIG.
        processes: what identifies the processes of the servers, asked before.
    """
    _processes[:] = processes
    jobs: Dict[str, object] = {
        "ps": list(cluster.addresses["ps"]),
        cluster.task.role: {cluster.task.index: cluster.address_of(cluster.task)},
    }
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(jobs),
        job_name=cluster.task.role,
        task_index=cluster.task.index,
        protocol="grpc",
        make_master_device_default=False,
    )
