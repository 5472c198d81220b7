"""The workers a strategy spans: one process alone, or many that talk through the native collectives."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from tf_strategies.cluster import Cluster
from tf_strategies.collective.xla import refuse_xla
from tf_strategies.errors import ClusterConfigError
from tf_strategies.options import CommunicationOptions

__all__ = ["ConnectedWorkers", "SingleWorker", "form_group"]


class SingleWorker:
    """A group of one: no network, and the native library is never loaded."""

    rank = 0
    size = 1

    def name_of(self, rank: int) -> str:
        """How messages name a worker."""
        return f"worker {rank}"

    def all_reduce(self, tensors: Sequence[tf.Tensor], name: str) -> List[tf.Tensor]:
        """The sum over workers of each tensor of one pack (all of one dtype)."""
        del name
        return list(tensors)

    def all_gather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """The tensors of all workers one after the other along axis 0; their first dimensions may differ."""
        del name
        return tensor

    def broadcast(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """The tensor of worker 0."""
        del name
        return tensor

    def stats(self) -> Dict[str, Any]:
        """Counters, as `Communicator.stats()`."""
        return {"transport": "none", "bytes_sent": 0, "bytes_received": 0, "collectives": []}

    def close(self) -> None:
        """Leaves the group; later collectives fail."""


class ConnectedWorkers:
    """The group of a cluster; it is left when this object dies or the interpreter ends.

    `all_reduce`, `all_gather` and `broadcast` are collectives: all workers must call them alike.
    """

    def __init__(self, cluster: Cluster, options: CommunicationOptions) -> None:
        from tf_strategies.native import collective_ops
        from tf_strategies.native.communicator import Communicator

        self._ops = collective_ops
        self._communicator = Communicator.connect(cluster, options)
        self._names = [cluster.name_of(task) for task in cluster.worker_tasks]
        self.rank = self._communicator.rank
        self.size = self._communicator.size
        atexit.register(self._communicator.close_at_exit)
        weakref.finalize(self, _close_elsewhere, self._communicator).atexit = False

    def name_of(self, rank: int) -> str:
        return self._names[rank]

    def all_reduce(self, tensors: Sequence[tf.Tensor], name: str) -> List[tf.Tensor]:
        refuse_xla(name)
        return self._ops.all_reduce(
            list(tensors), communicator=self._communicator, reduction="sum", name=name
        )

    def all_gather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        refuse_xla(name)
        return self._ops.all_gather(tensor, communicator=self._communicator, name=name)

    def broadcast(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        refuse_xla(name)
        return self._ops.broadcast(tensor, communicator=self._communicator, name=name)

    def stats(self) -> Dict[str, Any]:
        return self._communicator.stats()

    def close(self) -> None:
        atexit.unregister(self._communicator.close_at_exit)
        self._communicator.close()


def _close_elsewhere(communicator) -> None:
    """Closes on a thread of its own: garbage may be collected on one that closing waits for."""
    atexit.unregister(communicator.close_at_exit)
    threading.Thread(target=communicator.close, name="tf_strategies close", daemon=True).start()


def form_group(cluster: Optional[Cluster], options: CommunicationOptions):
    """Connects this process to the other workers of the cluster; `SingleWorker` when there are none.

    Raises:
        ClusterConfigError: this task is not one that trains.
        BootstrapError: the group could not form.
    """
    if cluster is None:
        return SingleWorker()
    if cluster.rank is None:
        raise ClusterConfigError(
            f"TF_CONFIG makes this process {cluster.task}, which takes no part in collective training; run the strategy on the "
            "chief and the workers only"
        )
    return SingleWorker() if cluster.size == 1 else ConnectedWorkers(cluster, options)
