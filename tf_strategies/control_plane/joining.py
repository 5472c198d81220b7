"""Repeats the attempts of a member to join its group, and says why it gives up."""

from __future__ import annotations

import logging
import time
from typing import Callable, NamedTuple

from tf_strategies.control_plane.distrust import REFUSED_SECONDS, DistrustError, Refusal
from tf_strategies.errors import BootstrapError

__all__ = ["Setback", "join"]

_log = logging.getLogger("tf_strategies")

_RETRY_SECONDS = (0.1, 1.0)
_FIRST_PROGRESS_SECONDS = 5.0


class Setback(NamedTuple):
    """Describes an attempt that has failed.

    Attributes:
        reason: the reason to try again.
        variable: the environment variable to correct, if this rank and rank 0 disagree about the secret or TLS; "" otherwise.
    """

    reason: str
    variable: str


def join(
    attempt: Callable[[], Setback | None],
    pause: Callable[[float], object],
    *,
    mine: str,
    first: str,
    timeout: float,
) -> None:
    """Makes attempts until one succeeds.

    Args:
        attempt: tries to join. It returns None on success.
        pause: waits for some seconds, between two attempts.
        mine: the name of this rank.
        first: the name of rank 0.
        timeout: the limit for joining, in seconds.

    Raises:
        BootstrapError: the timeout has passed, or this rank and rank 0 disagree about the secret or TLS.
    """
    start = time.monotonic()
    seconds, next_progress = _RETRY_SECONDS[0], _FIRST_PROGRESS_SECONDS
    refusal: Refusal | None = None
    while True:
        setback = attempt()
        if setback is None:
            return
        waited = time.monotonic() - start
        if setback.variable:
            refusal = Refusal(setback.variable, setback.reason, waited)
        if refusal is not None and waited + seconds >= REFUSED_SECONDS and refusal.counts(waited):
            raise DistrustError(refusal.variable, mine, first, refusal.reason)
        if waited + seconds >= timeout:
            raise BootstrapError(
                f"{mine} did not join a group within {timeout:g} s: {first}: {setback.reason}; start the missing "
                f"workers, check the address of {first} in TF_CONFIG and the firewall, or raise the timeout"
            )
        if waited >= next_progress:
            next_progress *= 2
            _log.warning("%s waits for %s (%.0f s): %s", mine, first, waited, setback.reason)
        pause(seconds)
        seconds = min(2 * seconds, _RETRY_SECONDS[1])
