"""The coordinator's list of the members of the group."""

from __future__ import annotations

import dataclasses
import time
from typing import Iterator

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.link import Connection
from tf_strategies.control_plane.messages import Message


@dataclasses.dataclass
class Waiting:
    """The collective in which a member waits."""

    instance: int
    seconds: float  # that it had waited when it sent the message
    text: str
    heard: float  # time.monotonic() of the message
    since: float  # time.monotonic() of the first message about this instance


@dataclasses.dataclass
class Entry:
    """One rank that joined."""

    connection: Connection
    process: str  # "process 71 on node-3"
    gone: bool = False  # left or lost: the connection is of no more use
    left: float | None = None  # time.monotonic() of its leave
    why: str = ""  # the error that made it leave
    acknowledged: bool = False  # it has heard of the failure
    waiting: Waiting | None = None


class Roster:
    """The members by rank, and their names."""

    def __init__(self, cluster: Cluster) -> None:
        self.names = tuple(cluster.name_of(task) for task in cluster.worker_tasks)
        self.tasks = tuple(str(task) for task in cluster.worker_tasks)
        self.entries: dict[int, Entry] = {}

    @property
    def size(self) -> int:
        """The number of ranks of the group."""
        return len(self.names)

    def complete(self) -> bool:
        """Returns True if every rank has joined."""
        return len(self.entries) == self.size

    def rank_of(self, connection: Connection) -> int | None:
        """Returns the rank that joined over this connection."""
        return next((rank for rank, entry in self.entries.items() if entry.connection is connection), None)

    def present(self) -> Iterator[tuple[int, Entry]]:
        """Returns the members that neither left nor were lost, by rank."""
        return ((rank, self.entries[rank]) for rank in sorted(self.entries) if not self.entries[rank].gone)

    def missing(self) -> list[str]:
        """Returns the names of those that have not joined."""
        return [name for rank, name in enumerate(self.names) if rank not in self.entries]

    def leavers(self) -> list[int]:
        """Returns the ranks that have left in good order."""
        return [rank for rank, entry in sorted(self.entries.items()) if entry.left is not None]

    def send_to_all(self, message: Message) -> None:
        """Sends a message to every member that is present."""
        for _, entry in self.present():
            entry.connection.send(message)

    def note_waiting(self, rank: int, instance: int, seconds: float, text: str) -> None:
        """Takes down what a member says it waits in; instance -1 for nothing."""
        entry = self.entries[rank]
        if instance < 0:
            entry.waiting = None
            return
        now = time.monotonic()
        before = entry.waiting
        # A new wait in an instance seen before is a shorter wait than what has passed since.
        continued = before is not None and before.instance == instance and seconds >= before.seconds
        since = before.since if before is not None and continued else now
        entry.waiting = Waiting(instance, seconds, text, heard=now, since=since)
