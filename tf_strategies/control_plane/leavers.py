"""Ends waits for a member that has left the group in an orderly way."""

from __future__ import annotations

from tf_strategies.control_plane.messages import Failure
from tf_strategies.errors import Code

__all__ = ["LEFT_SECONDS", "left_while_waiting"]

LEFT_SECONDS = 1.0  # the longest wait for a member that has left


def left_while_waiting(rank: int, leaver: str, why: str, waiter: str, text: str) -> Failure:
    """Returns the failure of a group in which a member waits for another that has left.

    Args:
        rank: the member that has left.
        leaver: its name.
        why: the error that ended its script, or "".
        waiter: the name of the member that waits.
        text: the collective in which it waits.
    """
    ended = f"its script ended with {why}" if why else "its script ended"
    remedy = "see its log, then restart all workers" if why else "give every worker the same number of steps"
    return Failure(
        Code.UNAVAILABLE,
        f"{leaver} left the group ({ended}) while {waiter} was still training, waiting in {text}; {remedy}",
        frozenset({rank} if why else ()),
    )
