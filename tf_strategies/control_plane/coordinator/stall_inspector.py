"""Detects waits of members that cannot end, and logs those that take long."""

from __future__ import annotations

import logging
import time

from tf_strategies.control_plane.coordinator.failure_decision import describe_by_text
from tf_strategies.control_plane.coordinator.roster import Roster, Waiting
from tf_strategies.control_plane.leavers import LEFT_SECONDS, left_while_waiting
from tf_strategies.control_plane.messages import Failure
from tf_strategies.errors import Code

_log = logging.getLogger("tf_strategies")

CROSSED_SECONDS = 2.0  # how long all members may wait in different collectives
WARN_SECONDS = 10.0  # how long a member may wait before the first warning


class StallInspector:
    """Inspects a roster repeatedly, and remembers which warnings were logged.

    Args:
        roster: the members.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._next_warning = WARN_SECONDS

    def inspect(self) -> Failure | None:
        """Returns the failure if a wait cannot end, otherwise None. Logs a warning for a long wait."""
        waiting = {rank: entry.waiting for rank, entry in self._roster.present() if entry.waiting is not None}
        if not waiting:
            self._next_warning = WARN_SECONDS
            return None
        failure = self._waits_for_a_leaver(waiting) or self._waits_crosswise(waiting)
        if failure is None:
            self._warn_of_missing(waiting)
        return failure

    def _waits_for_a_leaver(self, waiting: dict[int, Waiting]) -> Failure | None:
        names = self._roster.names
        now = time.monotonic()
        for leaver in self._roster.leavers():
            left, why = self._roster.entries[leaver].left, self._roster.entries[leaver].why
            for rank, state in waiting.items():
                # A member that left with an error may not have sent everything.
                patience = 0.0 if why else LEFT_SECONDS
                heard_since = left is not None and state.heard > left and now - left > patience
                if heard_since and state.quiet >= patience:
                    return left_while_waiting(leaver, names[leaver], why, names[rank], state.text)
        return None

    def _waits_crosswise(self, waiting: dict[int, Waiting]) -> Failure | None:
        # A wait counts only if several messages confirm it. The last message alone may be outdated: the member may
        # have continued since, or may be stopped. While data move, collectives of a slow network may still end.
        if len(waiting) < self._roster.size or len({state.instance for state in waiting.values()}) < 2:
            return None
        if any(
            min(_seconds(state), state.quiet, state.heard - state.since) <= CROSSED_SECONDS
            for state in waiting.values()
        ):
            return None
        described = describe_by_text(
            {rank: f"collective {state.instance}, {state.text}" for rank, state in waiting.items()},
            self._roster.names,
        )
        return Failure(
            Code.MISMATCH,
            f"workers wait for each other in different collectives: {described}; make every worker run the "
            "same collectives in the same order",
        )

    def _warn_of_missing(self, waiting: dict[int, Waiting]) -> None:
        names = self._roster.names
        longest_rank, longest = max(waiting.items(), key=lambda item: _seconds(item[1]))
        missing = [names[rank] for rank, _ in self._roster.present() if rank not in waiting]
        seconds = _seconds(longest)
        if seconds < WARN_SECONDS:
            self._next_warning = WARN_SECONDS
        if not missing or seconds < self._next_warning:
            return
        _log.warning(
            "%s has waited %.0f s in %s for %s, which have not started a collective",
            names[longest_rank],
            seconds,
            longest.text,
            ", ".join(missing),
        )
        while self._next_warning <= seconds:
            self._next_warning *= 2


def _seconds(state: Waiting) -> float:
    return state.seconds + time.monotonic() - state.heard
