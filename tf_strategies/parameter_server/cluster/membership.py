"""This worker's entry in the ledgers of the servers: there it joins, and there its steps are counted."""

from __future__ import annotations

import secrets
from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.native import ledger

__all__ = ["Membership"]


class Membership:
    """One worker among those that use the servers.

    Args:
        name: of the ledger, the same on all workers.
        devices: of the servers; the first keeps the books, all of them know who takes part.
        rank: this worker's number.
        names: how messages name each worker, by rank.
        options: what must be equal on all workers, in words.
        timeout: seconds that anything may wait for another worker.
    """

    def __init__(
        self,
        name: str,
        devices: Sequence[str],
        *,
        rank: int,
        names: Sequence[str],
        options: str,
        timeout: float,
    ) -> None:
        self.name = name
        self.devices = list(devices)
        self.rank = rank
        self.size = len(names)
        self.timeout = timeout
        self.caller = ledger.Caller(name, rank, secrets.randbits(62))
        for device in self.devices:
            with tf.device(device):
                ledger.join(self.caller, names=names, options=options)

    def agree(self, what: str, text: str) -> None:
        """Raises InvalidArgumentError where another worker has given another text for the same thing."""
        with tf.device(self.devices[0]):
            ledger.agree(self.caller, what, text)

    def pull(self, max_staleness: Optional[int]) -> tf.Tensor:
        """Returns the number of updates before the variables are read, [] int64.

        Waits while this worker is more than `max_staleness` steps ahead of the slowest that trains.
        """
        bound = ledger.UNBOUNDED if max_staleness is None else max_staleness
        with tf.device(self.devices[0]):
            return ledger.pull(self.caller, max_staleness=bound, timeout=self.timeout)

    def push(self, pulled: tf.Tensor) -> tf.Tensor:
        """Counts an update with gradients of what was read at `pulled`; returns their staleness, [] int64."""
        with tf.device(self.devices[0]):
            return ledger.push(self.caller, pulled)

    def staleness(self) -> ledger.Staleness:
        """Returns the staleness of all updates so far, by all workers."""
        with tf.device(self.devices[0]):
            return ledger.staleness(self.name)

    def enter(self, generation: int) -> None:
        """Begins a fit, the n-th of this worker, when all that train have begun theirs."""
        with tf.device(self.devices[0]):
            ledger.enter(self.caller, generation, timeout=self.timeout)

    def step(self) -> int:
        """Returns how many updates all workers have made."""
        with tf.device(self.devices[0]):
            return int(ledger.step(self.name))

    def set_step(self, step: int) -> None:
        """Goes on from that number of updates."""
        with tf.device(self.devices[0]):
            ledger.set_step(self.name, step)

    def counts(self) -> ledger.Counts:
        """Returns what became of the workers' gradients."""
        with tf.device(self.devices[0]):
            return ledger.counts(self.name)

    def submitters(self) -> List[int]:
        """Returns the workers that have submitted gradients for the current step and wait for the outcome."""
        with tf.device(self.devices[0]):
            return ledger.submitters(self.name).numpy().tolist()

    def leave(self, *, finished: bool) -> None:
        """Tells the servers that this worker trains no more: for good, or until its next fit."""
        for device in self.devices:
            with tf.device(device):
                ledger.leave(self.caller, finished=finished)
