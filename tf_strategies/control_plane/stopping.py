"""Stops a training at the same place on all members when one or several of them want to.

A training passes places where it can stop, counted from 1: after each step and after each epoch. A member that wants to stop
waits at its next place and asks. Rank 0 asks all members for the first place at which each can still stop, and the last of
these is where all stop. Nothing is sent as long as nobody wants to stop.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Callable, Dict, Optional

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
    """One member's side.

    Args:
        changed: guards the state; it is notified when the group fails.
        send: queues a message for rank 0.
        broken: whether no answer can come any more.
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
        self._waited_for: set[int] = set()  # votes about trainings that this member has not begun

    def begin(self) -> int:
        """Begins a training. All members begin theirs in the same order. Returns its number."""
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
        """Passes the next place of a training. Returns whether it stops there.

        Args:
            number: of the training.
            wanted: whether this member wants to stop; once is enough.
        """
        with self._changed:
            training = self._running[number]
            if training.stops_at is None and (wanted or training.voting):
                if not training.voting:
                    self._send({"type": "stop", "training": number})
                self._changed.wait_for(lambda: training.stops_at is not None or self._broken(), self._timeout)
                if training.stops_at is None:  # the next collective tells why
                    return wanted
            training.passed += 1
            return training.stops_at is not None and training.passed >= training.stops_at

    def on_question(self, number: int) -> None:
        """Answers where this member can stop; from then on it passes no place before rank 0 has decided."""
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
        """Takes the place at which all stop; the condition is notified by the caller."""
        training = self._running.get(number)
        if training is not None:
            training.stops_at = place
