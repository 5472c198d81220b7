"""Adds up the metrics of all workers for an epoch: each writes its sums to the first server and reads those of the others."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.hooks import Hooks
from tf_strategies.parameter_server.cluster.peer_entries import PeerEntries
from tf_strategies.parameter_server.cluster.servers import Servers

__all__ = ["EpochSums"]

_EPOCHS_KEPT = (
    16  # the number of epochs that a worker may be behind the others and still find their sums of its epoch
)


class EpochSums(Hooks):
    """Adds up the metrics of one fit. It is a callback, to know the epoch.

    Args:
        servers: the servers, and this worker's rank among the workers that use them.
        fit: the number of the fit, from 0; the same on all workers.
        in_step: whether all workers end an epoch at about the same time. Each then waits a little for the
            others.
    """

    def __init__(self, servers: Servers, fit: int, *, in_step: bool) -> None:
        super().__init__()
        self._epoch = 0
        self._servers = servers
        self._fit = fit
        self._peer_entries = PeerEntries(servers.rank, servers.size, wait=in_step)
        self._left: Dict[Tuple[int, int, int], tf.Variable] = {}

    def on_epoch_begin(self, epoch: int, logs: Optional[Logs] = None) -> None:
        self._epoch = epoch

    def add_up(self, values: Sequence[np.ndarray]) -> List[np.ndarray]:
        """Writes this worker's sums, and adds the sums that others have written for the same epoch.

        Args:
            values: arrays of any shapes and numeric dtypes, the same on all workers.

        Returns:
            The sums, with the same shapes and dtypes. They have the same bits on all workers if all have
            written.
        """
        own = np.concatenate(
            [[self._fit, self._epoch], *(np.asarray(value, np.float64).reshape(-1) for value in values)]
        )
        self._servers.write_entry(0, self._variable(self._servers.rank, own.size), own)
        left = self._peer_entries.find(
            lambda rank: self._left_by(rank, own.size), self._servers.membership.submitters
        )
        found = {self._servers.rank: own, **left}
        total = np.sum([found[rank][2:] for rank in sorted(found)], axis=0)
        pieces = np.split(total, np.cumsum([value.size for value in values])[:-1])
        return [piece.reshape(value.shape).astype(value.dtype) for value, piece in zip(values, pieces)]

    def _left_by(self, rank: int, size: int) -> Optional[np.ndarray]:
        left = self._variable(rank, size)
        values = left.numpy() if left.is_initialized() else None
        return values if values is not None and tuple(values[:2]) == (self._fit, self._epoch) else None

    def _variable(self, rank: int, size: int) -> tf.Variable:
        key = rank, (self._fit + self._epoch) % _EPOCHS_KEPT, size  # the same variables in all fits
        if key not in self._left:
            name = "/".join(map(str, ("counted", *key)))
            self._left[key] = self._servers.named_variable(0, name, tf.TensorShape([size]), tf.float64)
        return self._left[key]
