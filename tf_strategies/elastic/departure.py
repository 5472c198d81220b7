"""Lets a worker leave the others in good order when SIGTERM asks it to end."""

from __future__ import annotations

import contextlib
import logging
from typing import Callable, FrozenSet, Iterator, Optional, Protocol

import tensorflow as tf

from tf_strategies.callbacks.preemption import Preemption, Stoppable
from tf_strategies.callbacks.termination import EXIT_STATUS, Termination
from tf_strategies.errors import BootstrapError
from tf_strategies.types import Result

__all__ = ["Departure", "Leavable"]

_log = logging.getLogger("tf_strategies")


class Leavable(Stoppable, Protocol):
    """A strategy whose workers can leave one another."""

    rank: int
    size: int

    def has_ended(self) -> bool:
        """Returns True if the group has failed."""

    def abandon(self, why: str = "") -> None:
        """Lets the survivors go on without this worker, for which it tells them the reason."""

    def let_leave(self, ranks: FrozenSet[int]) -> None:
        """Ends the group, so that some workers leave it and the others form the next one. A collective."""


class Departure(contextlib.ExitStack):
    """Notes SIGTERM, and finds the place at which a worker leaves. It is a context: that of a `fit`, with all its attempts.

    The signal ends the process at once, as without this class, if the script handles it, or calls `fit` in another thread.

    Args:
        strategy: the strategy.
        can_continue: whether the others go on without this worker.
        min_workers: the fewest workers that go on.

    Attributes:
        notes_signal: whether it notes SIGTERM.
    """

    def __init__(self, strategy: Leavable, can_continue: bool, min_workers: int = 1) -> None:
        super().__init__()
        self._min_workers, self.notes_signal = min_workers, False
        self._strategy, self._can_continue = strategy, can_continue
        self._termination = Termination()

    def __enter__(self) -> Departure:
        super().__enter__()
        if self._can_continue and Termination.can_open() and not Termination.is_handled():
            self.enter_context(self._termination)
            self.notes_signal = True
        return self

    @property
    def is_asked(self) -> bool:
        """Whether this worker is asked to end."""
        return self._termination.requested

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Opens the context of an attempt, whose places all workers of the group count."""
        with Preemption(self._strategy, self._termination) as self._preemption:
            yield

    def leaves_here(self) -> bool:
        """Returns True if a worker leaves here. All must call it at the same places of an attempt."""
        return self._preemption.stops_here()

    def leave(self, place: str, save: Optional[Callable[[], None]] = None) -> None:
        """Parts the workers that are asked to end from the others. A collective.

        Args:
            place: where training is, for messages.
            save: saves training if too few workers are left to train on. It is a collective.

        Raises:
            SystemExit: this worker leaves.
            CheckpointError: training cannot be saved.
            BootstrapError: others leave, and another group follows.
        """
        strategy, is_asked = self._strategy, self.is_asked
        if strategy.has_ended():
            raise BootstrapError(
                "the group has ended for another reason, and forms again before a worker leaves"
            )
        if is_asked:
            # Before the others can know that it leaves; see control_plane/roll_call/roll.py.
            strategy.abandon("SIGTERM, which asked it to end")
        too_few, how = False, "ends without being saved"
        try:
            leavers = self._preemption.asked(is_asked)
            too_few = strategy.size - len(leavers) < self._min_workers
            if save is not None and too_few:
                save()
                how = "is saved"
            if len(leavers) < strategy.size:
                strategy.let_leave(leavers)
        except (tf.errors.OpError, BootstrapError) as error:
            if is_asked:
                self.end(error)
            raise
        names = self._preemption.names_of(leavers)
        if not is_asked:
            if too_few:
                _log.warning(
                    "SIGTERM asked %s to end. Too few workers are left: training %s at %s", names, how, place
                )
            raise BootstrapError(f"SIGTERM asked {names} to end; the others form a group again")
        if len(leavers) == strategy.size:
            _log.warning("SIGTERM asked all workers to end. Training %s at %s", how, place)
        elif too_few:
            _log.warning(
                "SIGTERM asked %s to end. Too few workers are left: training %s at %s", names, how, place
            )
        else:
            mine = strategy.name_of(strategy.rank)
            _log.warning("SIGTERM asked %s to end. It leaves at %s, and the others train on", mine, place)
        raise SystemExit(EXIT_STATUS)

    def reformed(self, reform: Callable[[], Result]) -> Result:
        """Returns the result of a function that waits until the next group has formed.

        Raises:
            SystemExit: it has not formed, and this worker is asked to end.
            BootstrapError: it has not formed.
        """
        try:
            return reform()
        except BootstrapError as error:
            if self.is_asked:
                self.end(error)
            raise

    def end(self, error: BaseException) -> None:
        """Ends this worker, which is asked to end, after an error that keeps it from leaving in good order."""
        mine = self._strategy.name_of(self._strategy.rank)
        _log.warning("SIGTERM asked %s to end. It leaves at once, after an error: %s", mine, error)
        raise SystemExit(EXIT_STATUS) from error
