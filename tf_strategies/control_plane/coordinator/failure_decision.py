"""Decides on the cause that all members report, from one report and the descriptions of all members."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Mapping, Sequence

from tf_strategies.control_plane.leavers import left_while_waiting
from tf_strategies.control_plane.messages import Failure
from tf_strategies.errors import Code

# Less than a member waits for the decision, after which it reports its own cause: see native/communicator.py.
COLLECT_SECONDS = 1.5

_REMEDY = {
    Code.MISMATCH: "run the same script with the same model, batch shape and options on every worker",
    Code.DEADLINE_EXCEEDED: "see the logs of the workers that did not take part, or raise the timeout option",
    Code.UNAVAILABLE: "see that worker's log, then restart all workers",
    Code.RESOURCE_EXHAUSTED: "give that worker more memory, or use a smaller batch or model, then restart all",
}


class FailureDecision:
    """Collects the descriptions of a collective that one member has reported, and decides on the cause.

    Args:
        reporter: the rank that reported the failure.
        failure: the reported failure.
        instance: the number of the collective, or -1.
        peer: the other rank of the failure, or -1.
        asked: the ranks that were asked to describe the collective.

    Attributes:
        texts: the descriptions so far, by rank.
        waited: how long each rank has waited in a collective, in seconds; negative if it is in none.
    """

    def __init__(
        self, reporter: int, failure: Failure, instance: int, peer: int, asked: Sequence[int]
    ) -> None:
        self.reporter = reporter
        self.failure = failure
        self.instance = instance
        self.peer = peer
        self.texts: dict[int, str] = {}
        self.waited: dict[int, float] = {}
        self._asked = tuple(asked)
        self._until = time.monotonic() + COLLECT_SECONDS

    def ready(self) -> bool:
        """Returns True if all members have answered or the time for answers is over."""
        return len(self.texts) == len(self._asked) or time.monotonic() >= self._until

    def conclude(self, names: Sequence[str], left: Mapping[int, str] = MappingProxyType({})) -> Failure:
        """Returns the failure that all members report.

        Args:
            names: the names of the members, by rank.
            left: the reasons of the members that have left, by rank.
        """
        code, message = self.failure.code, self.failure.message
        if code == Code.UNAVAILABLE and self.peer in left:
            doing = self.texts.get(self.reporter, f"collective {self.instance}")
            return left_while_waiting(
                self.peer, names[self.peer], left[self.peer], names[self.reporter], doing
            )
        answers = {rank: self.texts.get(rank, "no answer") for rank in self._asked}
        described = describe_by_text(answers, names) if self.instance >= 0 else ""
        remedy = _REMEDY.get(code, "see the workers' logs")
        late = self._late()
        if code == Code.DEADLINE_EXCEEDED and late:
            return Failure(code, self._not_there(late, names), frozenset(late))
        if code == Code.MISMATCH and self.instance >= 0 and len(set(self.texts.values())) > 1:
            return Failure(code, f"workers disagree about collective {self.instance}: {described}; {remedy}")
        head = f"{names[self.reporter]} reports: {message}"
        if 0 <= self.peer < len(names) and names[self.peer] not in message:
            head += f" (the other side is {names[self.peer]})"
        if described:
            head += f"; collective {self.instance}: {described}"
        lost = frozenset({self.peer} if code == Code.UNAVAILABLE and self.peer >= 0 else ())
        return Failure(code, f"{head}; {remedy}", lost)

    def _late(self) -> list[int]:
        """Returns the members that are in no collective or did not answer; none if the reporter is in no collective."""
        if self.waited.get(self.reporter, -1.0) < 0:
            return []
        return [rank for rank in self._asked if self.waited.get(rank, -1.0) < 0]

    def _not_there(self, late: Sequence[int], names: Sequence[str]) -> str:
        waiting = ", ".join(names[rank] for rank in self._asked if rank not in late)
        seconds, doing = self.waited[self.reporter], self.texts[self.reporter]
        return (
            f"{', '.join(names[rank] for rank in late)} did not take part in {doing}, in which {waiting} waited {seconds:.0f} s; "
            "see the log of the late worker and check what it does between two steps, or raise CommunicationOptions.timeout if "
            "this may take longer"
        )


def describe_by_text(texts: dict[int, str], names: Sequence[str]) -> str:
    """Returns the descriptions of members as one text, in which members with equal descriptions are together.

    Args:
        texts: the descriptions, by rank.
        names: the names of all members, by rank.

    Example:
        >>> describe_by_text({0: "sum", 1: "mean", 2: "sum"}, ["worker 0", "worker 1", "worker 2"])
        'worker 0, worker 2: sum; worker 1: mean'
    """
    by_text: dict[str, list[int]] = {}
    for rank in sorted(texts):
        by_text.setdefault(texts[rank], []).append(rank)
    return "; ".join(f"{', '.join(names[rank] for rank in ranks)}: {text}" for text, ranks in by_text.items())
