"""The coordinator's list of the members of the group."""

from __future__ import annotations

import dataclasses
import time
from typing import Iterator

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.link import Connection
from tf_strategies.control_plane.messages import Message, Wait


@dataclasses.dataclass
class Waiting:
    """Describes the collective in which a member waits.

    Attributes:
        instance: the number of the collective.
        seconds: how long the member had waited when it sent its last message.
        quiet: how long it had neither sent nor received data then.
        text: the description of the collective.
        heard: time.monotonic() of the last message.
        since: time.monotonic() of the first message about this wait.
    """

    instance: int
    seconds: float
    quiet: float
    text: str
    heard: float
    since: float


@dataclasses.dataclass
class Entry:
    """Describes a member that has joined.

    Attributes:
        connection: the coordinator's end of its stream.
        process: "process 71 on node-3".
        gone: whether it has left or is lost, so that the connection is no longer used.
        left: time.monotonic() of its leave message, or None.
        why: the error that ended it, or "".
        acknowledged: whether it has received the failure of the group.
        waiting: the collective in which it waits, or None.
    """

    connection: Connection
    process: str
    gone: bool = False
    left: float | None = None
    why: str = ""
    acknowledged: bool = False
    waiting: Waiting | None = None


class Roster:
    """Holds the members that have joined, and the names of all members.

    Args:
        cluster: the cluster of rank 0.

    Attributes:
        names: the names by rank, "worker 1 (10.0.0.3:2222)".
        tasks: the tasks by rank, "worker 1".
        entries: the members that have joined, by rank.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.names = tuple(cluster.name_of(task) for task in cluster.worker_tasks)
        self.tasks = tuple(str(task) for task in cluster.worker_tasks)
        self.entries: dict[int, Entry] = {}

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.names)

    def complete(self) -> bool:
        """Returns True if every rank has joined."""
        return len(self.entries) == self.size

    def rank_of(self, connection: Connection) -> int | None:
        """Returns the rank that joined over this connection, or None."""
        return next((rank for rank, entry in self.entries.items() if entry.connection is connection), None)

    def present(self) -> Iterator[tuple[int, Entry]]:
        """Returns the members that have neither left nor been lost, by rank."""
        return ((rank, self.entries[rank]) for rank in sorted(self.entries) if not self.entries[rank].gone)

    def missing(self) -> list[str]:
        """Returns the names of the members that have not joined."""
        return [name for rank, name in enumerate(self.names) if rank not in self.entries]

    def leavers(self) -> list[int]:
        """Returns the ranks that have left in an orderly way."""
        return [rank for rank, entry in sorted(self.entries.items()) if entry.left is not None]

    def send_to_all(self, message: Message) -> None:
        """Sends a message to every member that is present."""
        for _, entry in self.present():
            entry.connection.send(message)

    def note_waiting(self, rank: int, wait: Wait) -> None:
        """Records the collective in which a member waits; instance -1 means that it does not wait."""
        entry = self.entries[rank]
        if wait.instance < 0:
            entry.waiting = None
            return
        now = time.monotonic()
        before = entry.waiting
        # If the wait is shorter than before, it is a new wait in the same instance.
        continued = before is not None and before.instance == wait.instance and wait.seconds >= before.seconds
        since = before.since if before is not None and continued else now
        entry.waiting = Waiting(*wait, heard=now, since=since)
