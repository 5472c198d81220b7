"""Runs a `ps` process, which holds variables until all workers are done."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Dict, List, NoReturn, Optional, Tuple

import grpc
import tensorflow as tf
from absl import logging

from tf_strategies.cluster import Cluster
from tf_strategies.errors import BootstrapError
from tf_strategies.native import channel, ledger_core, loader
from tf_strategies.options import ParameterServerOptions
from tf_strategies.parameter_server.cluster.heartbeat import Heartbeat
from tf_strategies.parameter_server.cluster.protection import Protection
from tf_strategies.parameter_server.cluster.readiness import make_ready
from tf_strategies.parameter_server.copies.server_copies import ServerCopies
from tf_strategies.parameter_server.copies.snapshots import Snapshots
from tf_strategies.parameter_server.copies.standby import Standby

__all__ = ["serve"]

_LOOK_EVERY_SECONDS = 0.1
_GOODBYE_SECONDS = 1.0
_HERE = ("training", "idle")
_ORDER = ("expected", "finished", "lost", "idle", "training")


def serve(cluster: Cluster, options: ParameterServerOptions, replicas: int, *, in_step: bool) -> NoReturn:
    """Serves as a `ps` task, and then ends the process.

    The exit status is 0 if all workers have finished. It is 1, with the reason on standard error, if no
    worker connected, or if lost workers have not come back within `options.timeout` seconds after the other workers ended.

    Args:
        cluster: the cluster of TF_CONFIG.
        options: the options of the strategy.
        replicas: in how many places variables are held. With 2, the next server has a copy of those of this one, which takes
            them over when it starts again.
        in_step: whether all workers take every step together. The copies are then those of all servers at the same step.

    Raises:
        BootstrapError: the address cannot be used.
    """
    loader.library()
    own = cluster.name_of(cluster.task)
    protection = Protection(cluster)
    protection.accept_channels()
    protection.begin()
    copies: Optional[ServerCopies] = None
    try:
        server = tf.distribute.Server(
            _all_but_evaluators(cluster),
            job_name="ps",
            task_index=cluster.task.index,
            protocol="grpc",
            config=_threads(),
        )
        protection.cover()
        if replicas > 1:
            copies = (Snapshots if in_step else Standby)(server, cluster, protection)
            at = copies.take_over(options.timeout)
            if at is not None:
                when = datetime.datetime.fromtimestamp(at).isoformat(" ", "milliseconds")
                print(f"{own} has its variables back, as they were at {when}", flush=True)
        make_ready(server, cluster.address_of(cluster.task), through_proxy=protection.has_gateway)
    except BootstrapError:
        protection.close()
        raise
    except (tf.errors.OpError, grpc.RpcError) as error:
        protection.close()
        raise BootstrapError(
            f"{own} could not serve: {error}; check that its address belongs to this machine, and that no "
            f"other process listens on it"
        ) from error
    print(f"{own} serves {cluster.size} workers", flush=True)
    if copies is not None:
        copies.start()
    attendance = _Attendance(cluster, options, copies, through_proxy=protection.has_gateway)
    reason = attendance.wait_until_over()
    if copies is not None:
        copies.stop()
    time.sleep(_GOODBYE_SECONDS)
    if reason:
        print(f"{own} ends: {reason}", file=sys.stderr, flush=True)
    else:
        print(f"{own} ends: all workers have finished", flush=True)
    del server
    sys.exit(1 if reason else 0)


def _all_but_evaluators(cluster: Cluster) -> tf.train.ClusterSpec:
    """Returns the tasks that the server may connect to: the sessions of a worker fetch tensors through the server."""
    return tf.train.ClusterSpec(
        {role: list(listed) for role, listed in cluster.addresses.items() if role != "evaluator"}
    )


def _threads() -> tf.compat.v1.ConfigProto:
    """Returns the numbers of threads from tf.config.threading or the environment."""
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
    )


class _Attendance:
    """Watches the workers that have joined a ledger of this process."""

    def __init__(
        self,
        cluster: Cluster,
        options: ParameterServerOptions,
        copies: Optional[ServerCopies],
        *,
        through_proxy: bool,
    ) -> None:
        self._through_proxy, self._copies = through_proxy, copies
        self._tasks = cluster.worker_tasks
        self._addresses = [cluster.address_of(task) for task in self._tasks]
        self._names = [cluster.name_of(task) for task in self._tasks]
        self._timeout, self._heartbeat_timeout = options.timeout, options.heartbeat_timeout
        self._heartbeats: Dict[Tuple[int, int], Heartbeat] = {}

    def wait_until_over(self) -> str:
        """Waits until training is over.

        Returns "" if all workers have finished, otherwise the reason for the end.
        """
        deadline: Optional[float] = None
        while True:
            statuses = self._look()
            here = [rank for rank, status in enumerate(statuses) if status in _HERE]
            missing = [rank for rank, status in enumerate(statuses) if status in ("expected", "lost")]
            if not here and not missing:
                return ""
            if here:
                deadline = None
            elif deadline is None:
                deadline = time.monotonic() + self._timeout
            elif time.monotonic() > deadline:
                return self._why(statuses, missing)
            time.sleep(_LOOK_EVERY_SECONDS)

    def _look(self) -> List[str]:
        """Returns the status of each worker, by rank. With several ledgers, the least advanced status counts."""
        found = ["expected"] * len(self._tasks)
        for name in ledger_core.names():
            before = {} if self._copies is None else self._copies.before(name)
            for rank, member in enumerate(ledger_core.members(name)):
                was = before.get(rank, "expected") if member.incarnation == 0 else "expected"
                if was in ("finished", "lost"):
                    ledger_core.mark_lost(name, rank, 0)  # nobody waits for it
                    found[rank] = max(found[rank], was, key=_ORDER.index)
                    continue
                found[rank] = max(found[rank], member.status, key=_ORDER.index)
                key = rank, member.incarnation
                # One that was here before this process began joins again, unless it was lost, too.
                is_awaited = was in _HERE and member.status == "expected"
                if (member.status in _HERE or is_awaited) and key not in self._heartbeats:
                    self._heartbeats[key] = self._watch(rank, member.incarnation)
        return found

    def _watch(self, rank: int, incarnation: int) -> Heartbeat:
        def lost(reason: str) -> None:
            channel.fail_channels_to(self._names[rank], f"{self._names[rank]} no longer answers ({reason})")
            marked = [ledger_core.mark_lost(name, rank, incarnation) for name in ledger_core.names()]
            if any(marked):
                logging.warning(
                    "%s no longer answers (%s); this server treats it as lost", self._names[rank], reason
                )

        return Heartbeat(
            self._names[rank],
            self._addresses[rank],
            lost,
            timeout=self._heartbeat_timeout,
            through_proxy=self._through_proxy,
        )

    def _why(self, statuses: List[str], missing: List[int]) -> str:
        states = {"expected": "has never come", "lost": "is lost"}
        which = ", ".join(f"{self._names[rank]} {states[statuses[rank]]}" for rank in missing)
        return f"{which}, and no other worker has trained for {self._timeout:g} s; look at the logs of these workers"
