"""Ends waits for a member that has left in good order."""

from __future__ import annotations

from tf_strategies.control_plane.messages import Failure
from tf_strategies.errors import Code

__all__ = ["LEFT_SECONDS", "left_while_waiting"]

LEFT_SECONDS = 1.0  # the longest wait for a member that has left


def left_while_waiting(leaver: str, why: str, waiter: str, text: str) -> Failure:
    """Returns the cause when a member waits for one whose script has ended; `why` is the error that ended it, or ""."""
    ended = f"its script ended with {why}" if why else "its script ended"
    remedy = "see its log, then restart all workers" if why else "give every worker the same number of steps"
    return Failure(
        Code.UNAVAILABLE,
        f"{leaver} left the group ({ended}) while {waiter} was still training, waiting in {text}; {remedy}",
    )
