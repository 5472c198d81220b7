"""Reports the communication of a strategy."""

from __future__ import annotations

import dataclasses
from typing import Tuple

from tf_strategies.types import JsonObject

__all__ = ["CollectiveStats", "CommunicationStats"]


@dataclasses.dataclass(frozen=True)
class CollectiveStats:
    """Counts the collectives of one kind and algorithm.

    Attributes:
        kind: "all_reduce", "broadcast", "all_gather", "all_to_all" or "barrier".
        algorithm: the name of the schedule, as in `CommunicationOptions.algorithm`.
        calls: the number of calls.
        bytes: the payload of all calls: that of this worker; for an all_gather that of all workers; for an
            all_to_all the received bytes.
        seconds: the time from submission to completion, summed over calls. Calls overlap, so it may exceed the time passed.
    """

    kind: str
    algorithm: str
    calls: int
    bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class CommunicationStats:
    """Counts what this worker has communicated since the strategy was made.

    Attributes:
        transport: a description of the transport; "none" for a single worker.
        bytes_sent: the bytes that this worker has sent.
        bytes_received: the bytes that this worker has received.
        collectives: one entry for each kind and algorithm.
        bytes_staged: the bytes that all-reduces have copied from GPUs to pinned memory of this host, on streams of their own;
            the sums are copied back. 0 where the gradients were on the CPU, or TensorFlow has copied them.
        seconds_outstanding: the time in which at least one collective was outstanding: it waited for another worker, or data
            moved.
    """

    transport: str
    bytes_sent: int
    bytes_received: int
    collectives: Tuple[CollectiveStats, ...]
    bytes_staged: int = 0
    seconds_outstanding: float = 0.0

    @classmethod
    def from_counters(cls, counters: JsonObject) -> CommunicationStats:
        """Makes the statistics from `Communicator.stats()`. Collectives that were never called are left out."""
        collectives = tuple(
            CollectiveStats(
                kind=entry["kind"],
                algorithm=entry.get("algorithm") or "",
                calls=int(entry["calls"]),
                bytes=int(entry["bytes"]),
                seconds=float(entry["seconds"]),
            )
            for entry in counters["collectives"]
            if entry["calls"]
        )
        return cls(
            transport=counters["transport"],
            bytes_sent=int(counters["bytes_sent"]),
            bytes_received=int(counters["bytes_received"]),
            collectives=collectives,
            bytes_staged=int(counters.get("bytes_staged", 0)),
            seconds_outstanding=float(counters.get("seconds_outstanding", 0.0)),
        )

    @property
    def algorithms(self) -> Tuple[str, ...]:
        """The all-reduce algorithms in use. The algorithm that moved most bytes comes first."""
        used = sorted(
            (entry for entry in self.collectives if entry.kind == "all_reduce"),
            key=lambda entry: -entry.bytes,
        )
        return tuple(entry.algorithm for entry in used)

    @property
    def calls(self) -> int:
        """The number of collectives of any kind."""
        return sum(entry.calls for entry in self.collectives)

    @property
    def seconds(self) -> float:
        """The time of all collectives, summed."""
        return sum(entry.seconds for entry in self.collectives)
