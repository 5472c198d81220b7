"""The functions by which a member asks its owner, the communicator of this process, and tells it of failures."""

from __future__ import annotations

import logging
from typing import Callable, NamedTuple

from tf_strategies.control_plane.messages import Failure, Pace, Wait
from tf_strategies.types import JsonObject

__all__ = ["Callbacks"]

_log = logging.getLogger("tf_strategies")


class Callbacks(NamedTuple):
    """The functions of the owner; see `ControlPlane.join`. They are called on threads of the control plane."""

    on_abort: Callable[[int, str], None]
    describe: Callable[[int], str]
    waiting: Callable[[], Wait | None]
    pace: Callable[[], Pace | None] = lambda: None
    waited_for_batches: Callable[[float], float | None] = lambda seconds: None

    def answer(self, instance: int) -> JsonObject:
        """Returns what this rank knows of a collective, and how long it has waited in its oldest one; -1 if it does not wait."""
        state = self.waiting()
        return {
            "instance": instance,
            "text": self.describe(instance),
            "waited": state.seconds if state else -1.0,
        }

    def tell_of(self, failure: Failure, name: str) -> None:
        """Calls `on_abort`, which ends all waits. If it raises, calls it again with an ASCII message.

        Args:
            failure: the failure of the group.
            name: of this rank, for the log.
        """
        try:
            self.on_abort(int(failure.code), failure.message)
        except Exception:
            _log.exception("%s could not handle the failure of the group and tries again", name)
            self.on_abort(int(failure.code), ascii(failure.message))
