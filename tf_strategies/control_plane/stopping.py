"""Stops a training at the same place on all members, when at least one member requests it.

A training can stop at certain places: after each step and after each epoch. They are counted from 1. A member that
wants to stop sends a request to rank 0 and waits at its next place. Rank 0 asks every member for the first place at
which it can still stop. All members stop at the last of these places. No message is sent as long as no member wants to
stop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from typing import Callable, Dict, Iterator, Optional

from tf_strategies.control_plane.messages import Message

__all__ = ["NOWHERE", "Stopping"]

NOWHERE = (1 << 62) - 1  # the place of a training that is over


@dataclasses.dataclass
class _Training:
    number: int
    passed: int = 0  # the last place that was passed without stopping
    voting: bool = False
    stops_at: Optional[int] = None


class Stopping:
    """Handles the stops of one member's trainings.

    Args:
        changed: the condition whose lock guards the state. It is notified when the group fails.
        send: queues a message for rank 0.
        broken: returns True if no answer can arrive any more.
        timeout: the longest wait for an answer, in seconds.
    """

    def __init__(
        self,
        changed: threading.Condition,
        send: Callable[[Message], None],
        broken: Callable[[], bool],
        timeout: float,
    ) -> None:
        self._changed, self._send, self._broken, self._timeout = changed, send, broken, timeout
        self._begun = 0
        self._running: Dict[int, _Training] = {}
        self._waited_for: set[int] = set()  # the requests to stop trainings that this member has not begun

    @contextlib.contextmanager
    def training(self) -> Iterator[Callable[[bool], bool]]:
        """Opens a context for the time of a training.

        It yields a function, which must be called at each place where training can stop. Its argument is True if this
        member wants to stop. It returns True if all members stop at this place.
        """
        number = self.begin()
        try:
            yield functools.partial(self.stops, number)
        finally:
            self.end(number)

    def begin(self) -> int:
        """Begins a training, and returns its number. All members must begin their trainings in the same order."""
        with self._changed:
            self._begun += 1
            training = _Training(self._begun, voting=self._begun in self._waited_for)
            self._waited_for.discard(self._begun)
            self._running[training.number] = training
            return training.number

    def end(self, number: int) -> None:
        """Ends a training."""
        with self._changed:
            self._running.pop(number, None)

    def stops(self, number: int, wanted: bool) -> bool:
        """Passes the next place of a training, and returns True if the training stops there.

        Args:
            number: the number of the training.
            wanted: whether this member wants to stop. It need not be repeated.
        """
        with self._changed:
            training = self._running[number]
            if training.stops_at is None and (wanted or training.voting):
                if not training.voting:
                    self._send({"type": "stop", "training": number})
                self._changed.wait_for(lambda: training.stops_at is not None or self._broken(), self._timeout)
                if training.stops_at is None:  # the next collective raises the reason
                    return wanted
            training.passed += 1
            return training.stops_at is not None and training.passed >= training.stops_at

    def on_question(self, number: int) -> None:
        """Sends the first place at which this member can stop.

        The member then waits at this place until rank 0 has decided.
        """
        with self._changed:
            training = self._running.get(number)
            place = NOWHERE
            if training is not None:
                training.voting = True
                place = training.passed + 1
            elif number > self._begun:
                self._waited_for.add(number)
                place = 1
            self._send({"type": "can_stop", "training": number, "place": place})

    def on_decision(self, number: int, place: int) -> None:
        """Stores the place at which all members stop. The caller holds the lock and notifies the condition."""
        training = self._running.get(number)
        if training is not None:
            training.stops_at = place
