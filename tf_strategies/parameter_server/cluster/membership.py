"""Manages this worker's entry in the ledgers of the servers, which count its steps."""

from __future__ import annotations

import secrets
from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.native import ledger

__all__ = ["Membership"]


class Membership:
    """The membership of one worker.

    Args:
        name: the name of the ledger, the same on all workers.
        devices: the devices of the servers. The first server counts steps and gradients; all servers know the
            members.
        rank: this worker's number.
        names: the names of the workers in messages, by rank.
        options: the options that must be equal on all workers, as text.
        timeout: the number of seconds to wait for another worker.
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
        self._names, self._options = list(names), options
        self._generation = 0  # of the fit that this worker takes part in
        self.join()

    def join(self) -> None:
        """Joins the ledgers of all servers, also again after one was lost."""
        for device in self.devices:
            with tf.device(device):
                ledger.join(self.caller, names=self._names, options=self._options)
        if self._generation:  # a restarted worker waits until the others are in its fit
            self._enter(self._generation, timeout=0.0)

    def agree(self, what: str, text: str) -> None:
        """Raises InvalidArgumentError if another worker has given a different text for the same subject."""
        with tf.device(self.devices[0]):
            ledger.agree(self.caller, what, text)

    def pull(self, max_staleness: Optional[int]) -> tf.Tensor:
        """Returns the number of updates so far, [] int64. Call it before the variables are read.

        It waits while this worker is more than `max_staleness` steps ahead of the slowest worker that trains.
        """
        bound = ledger.UNBOUNDED if max_staleness is None else max_staleness
        with tf.device(self.devices[0]):
            return ledger.pull(self.caller, max_staleness=bound, timeout=self.timeout)

    def push(self, pulled: tf.Tensor) -> tf.Tensor:
        """Counts an update with gradients of weights that were read at `pulled`.

        Returns their staleness, [] int64.
        """
        with tf.device(self.devices[0]):
            return ledger.push(self.caller, pulled)

    def staleness(self) -> ledger.Staleness:
        """Returns the staleness of all updates so far, by all workers."""
        with tf.device(self.devices[0]):
            return ledger.staleness(self.name)

    def enter(self, generation: int) -> None:
        """Begins this worker's n-th fit, when all training workers have begun theirs."""
        self._enter(generation, self.timeout)
        self._generation = generation

    def _enter(self, generation: int, timeout: float) -> None:
        with tf.device(self.devices[0]):
            ledger.enter(self.caller, generation, timeout=timeout)

    def step(self) -> int:
        """Returns the number of updates by all workers."""
        with tf.device(self.devices[0]):
            return int(ledger.step(self.name))

    def set_step(self, step: int) -> None:
        """Sets the number of updates."""
        with tf.device(self.devices[0]):
            ledger.set_step(self.name, step)

    def counts(self) -> ledger.Counts:
        """Returns the numbers of counted and dropped gradients of the workers."""
        with tf.device(self.devices[0]):
            return ledger.counts(self.name)

    def submitters(self) -> List[int]:
        """Returns the workers that have submitted gradients for the current step and wait for the outcome."""
        with tf.device(self.devices[0]):
            return ledger.submitters(self.name).numpy().tolist()

    def leave(self, *, finished: bool) -> None:
        """Tells the servers that this worker has stopped training: finally, or until its next fit."""
        self._generation = 0
        for device in self.devices:
            with tf.device(device):
                ledger.leave(self.caller, finished=finished)
