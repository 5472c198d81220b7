"""Connects to the servers in other processes through TensorFlow's distributed runtime."""

from __future__ import annotations

import sys
from typing import Callable, ContextManager, Dict, Optional, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies import at_exit
from tf_strategies.addresses import split_address
from tf_strategies.cluster import Cluster, Task
from tf_strategies.errors import BootstrapError, ClusterConfigError
from tf_strategies.parameter_server.cluster import heartbeat
from tf_strategies.parameter_server.cluster.failure_detector import FailureDetector
from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.cluster.protection import Protection
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.cluster.transport import connect_transport
from tf_strategies.types import Result, Structure

__all__ = ["ConnectedServers"]


class ConnectedServers(Servers):
    """The `ps` tasks of a cluster, as one training task sees them.

    Args:
        cluster: the cluster of TF_CONFIG. This process must be a task that trains.
        name: a name for the state that the workers share.
        options: the options that must be equal on all workers, as text.
        transport: the transport of variables and gradients, as in ParameterServerOptions.
        timeout: seconds to wait for the servers, and for other workers later.

    Raises:
        BootstrapError: a server does not answer, this task's address cannot be used, or another worker has other options.
    """

    def __init__(self, cluster: Cluster, name: str, options: str, *, transport: str, timeout: float) -> None:
        self.name = name
        self.rank = cluster.rank or 0
        self.size = cluster.size
        self.timeout = timeout
        self._tasks = [Task("ps", index) for index in range(len(cluster.addresses["ps"]))]
        self._worker_names = [cluster.name_of(task) for task in cluster.worker_tasks]
        self.server_names = [cluster.name_of(task) for task in self._tasks]
        protection = _connect(cluster, timeout)
        own = cluster.task
        self.session_target = f"grpc://{cluster.address_of(own)}"
        self.device = f"/job:{own.role}/replica:0/task:{own.index}/device:CPU:0"
        self.devices = [f"/job:ps/replica:0/task:{task.index}/device:CPU:0" for task in self._tasks]
        try:
            self.membership = Membership(
                name, self.devices, rank=self.rank, names=self._worker_names, options=options, timeout=timeout
            )
        except tf.errors.InvalidArgumentError as error:
            raise BootstrapError(error.message) from None
        self.transport = connect_transport(
            self.device,
            list(zip(self.server_names, cluster.addresses["ps"], self.devices)),
            own=cluster.name_of(own),
            my_host=split_address(cluster.address_of(own))[0],
            transport=transport,
            timeout=timeout,
            protection=protection,
        )
        self._failure_detector = FailureDetector(
            list(zip(self.server_names, cluster.addresses["ps"])),
            self.transport.fail,
            through_proxy=protection.has_gateway,
        )
        self._closed = False
        at_exit.register(self._leave_at_exit)

    def detecting_failures(self) -> ContextManager[None]:
        return self._failure_detector.watch()

    def call(self, function: Callable[..., Result], *args: Structure) -> Result:
        with self._failure_detector.watch():
            return self._failure_detector.call(function, *args)

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


_connected: Optional[Tuple[Cluster, Protection]] = None


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
    heartbeat.wait_until_all_are_ready(own, servers, timeout, protection)
    jobs: Dict[str, object] = {
        "ps": list(cluster.addresses["ps"]),
        cluster.task.role: {cluster.task.index: cluster.address_of(cluster.task)},
    }
    protection.begin()
    try:
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(jobs),
            job_name=cluster.task.role,
            task_index=cluster.task.index,
            protocol="grpc",
            make_master_device_default=False,
        )
        tf.config.list_logical_devices()  # starts the server of this task
    except (tf.errors.OpError, RuntimeError) as error:
        raise BootstrapError(
            f"{own} could not connect to its servers: {error}; check that no other process listens on its "
            f"address, and make the strategy before any other use of TensorFlow"
        ) from error
