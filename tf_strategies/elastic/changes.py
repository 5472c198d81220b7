"""Says in a log line how a group has changed."""

from __future__ import annotations

from typing import List, Protocol

__all__ = ["Changed", "described_changes"]


class Changed(Protocol):
    """Describes how a group has formed again."""

    lost: List[str]
    left: List[str]
    joined: List[str]
    seconds: float


class Ranked(Protocol):
    """A strategy whose workers have ranks."""

    rank: int
    size: int

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker."""


def described_changes(changed: Changed, strategy: Ranked, place: str) -> str:
    """Returns a log line. `place` is where training continues."""
    changes = [
        f"{what}: {', '.join(names)}"
        for what, names in (("lost", changed.lost), ("left", changed.left), ("joined", changed.joined))
        if names
    ]
    mine = strategy.name_of(strategy.rank)
    head = f"{'; '.join(changes) or 'the same workers'}. {mine} trains on with rank {strategy.rank} of {strategy.size}"
    return (
        f"{head}, from {place} ({changed.seconds:.1f} s after the {'failure' if changed.lost else 'request'})"
    )
