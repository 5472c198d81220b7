"""Says which wire between workers is slower than the others, by what their connections have sent."""

from __future__ import annotations

from typing import Iterable, NamedTuple, Sequence

from tf_strategies.types import JsonObject

__all__ = ["Sent", "SlowWire", "find_slow_wire", "sent_over"]

_LEAST_BYTES = 1 << 20
_LEAST_MESSAGE = (
    128 << 10
)  # bytes; the time of shorter messages is mostly that of their way, however fast the wire is
_LEAST_SECONDS = 0.1
_SLOW = 0.6  # of the rate of the other wires


class Sent(NamedTuple):
    """Counts what a worker has sent to another one.

    Attributes:
        sender: the rank that has sent.
        receiver: the rank that has received.
        messages: the number of messages.
        bytes: the bytes that have arrived.
        seconds: the time in which bytes were on their way.
    """

    sender: int
    receiver: int
    messages: int
    bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """The bytes that arrived in a second."""
        return self.bytes / self.seconds

    def since(self, earlier: Sent | None) -> Sent:
        """Returns what was sent after an earlier count of the same wire; None for the beginning."""
        if earlier is None:
            return self
        return self._replace(
            messages=self.messages - earlier.messages,
            bytes=self.bytes - earlier.bytes,
            seconds=self.seconds - earlier.seconds,
        )


class SlowWire(NamedTuple):
    """Describes wires that are slower than the others.

    Attributes:
        wires: what was sent over them.
        usual: the rate of the others, in bytes a second.
    """

    wires: tuple[Sent, ...]
    usual: float

    @property
    def worker(self) -> int | None:
        """The rank to which all of the wires lead, or from which; None if they have no rank in common, or two."""
        common = set.intersection(*({each.sender, each.receiver} for each in self.wires))
        return common.pop() if len(common) == 1 else None

    @property
    def subject(self) -> tuple[int, ...]:
        """Names what is slow: a worker, or the sender and the receiver of the slowest wire."""
        worker, slowest = self.worker, min(self.wires, key=lambda each: each.rate)
        return (slowest.sender, slowest.receiver) if worker is None else (worker,)

    def describe(self, names: Sequence[str]) -> str:
        """Returns a sentence about it, without a dot, and one that says what to do.

        Args:
            names: the names of the workers, by rank.
        """
        worker = self.worker
        rate = sum(each.bytes for each in self.wires) / sum(each.seconds for each in self.wires)
        if worker is None:
            sender, receiver = self.subject
            slowest = min(each.rate for each in self.wires)
            found = f"the network from {names[sender]} to {names[receiver]} is slow: {_megabytes(slowest)}"
        elif all(each.sender == worker for each in self.wires):
            found = f"the network of {names[worker]} is slow: it sends {_megabytes(rate)}"
        elif all(each.receiver == worker for each in self.wires):
            found = f"the network of {names[worker]} is slow: it receives {_megabytes(rate)}"
        else:
            found = f"the network of {names[worker]} is slow: it sends and receives {_megabytes(rate)}"
        return (
            f"{found}, and the other connections have {_megabytes(self.usual)}. Look at its cables, its network cards and what "
            "else uses them. tfs-doctor measures the network between each two workers"
        )


def sent_over(connections: Sequence[JsonObject], rank: int) -> list[Sent]:
    """Returns what a rank has sent, from the "connections" of `tfs_communicator_stats`, without those that were not used.

    Args:
        connections: the connections.
        rank: the rank.
    """
    return [
        Sent(rank, int(each["peer"]), int(each["messages"]), int(each["bytes"]), float(each["seconds"]))
        for each in connections
        if each["messages"]
    ]


def find_slow_wire(sent: Sequence[Sent]) -> SlowWire | None:
    """Finds the wires with less than 0.6 of the rate that the faster half of all wires has at least.

    Wires with few bytes, or with short messages, are left out. So are those of a worker that sends or receives over several at
    once, if these together have that rate: with a number of workers that is no power of two, binary blocks do that.

    Args:
        sent: what was sent over each wire, in the same time.

    Returns:
        The wires, or None if all are about as fast.
    """
    known = [
        each
        for each in sent
        if each.bytes >= max(_LEAST_BYTES, _LEAST_MESSAGE * each.messages) and each.seconds >= _LEAST_SECONDS
    ]
    if len(known) < 2:
        return None
    usual = sorted(each.rate for each in known)[len(known) // 2]
    least = _SLOW * usual
    slow = [each for each in known if each.rate < least]
    workers = {rank for each in known for rank in (each.sender, each.receiver)}
    if len(workers) & (len(workers) - 1):
        slow = [
            each
            for each in slow
            if _rate_at_once(other for other in known if other.sender == each.sender) < least
            and _rate_at_once(other for other in known if other.receiver == each.receiver) < least
        ]
    return SlowWire(tuple(slow), usual) if slow else None


def _rate_at_once(wires: Iterable[Sent]) -> float:
    """Returns the rate of wires together, if all are used at the same time."""
    listed = list(wires)
    return sum(each.bytes for each in listed) / max(each.seconds for each in listed)


def _megabytes(rate: float) -> str:
    return f"{rate / 1e6:.3g} MB/s"
