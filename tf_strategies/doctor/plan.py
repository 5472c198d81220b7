"""Lists the tasks of a cluster in the order in which one of them leads: the chief, the workers, the servers."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from tf_strategies.addresses import is_loopback, split_address
from tf_strategies.cluster import ROLES, Cluster, Task

__all__ = ["Plan"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Describes the cluster as one task sees it.

    Attributes:
        task: this task, such as "worker 0".
        addresses: task -> "host:port", in order: the chief first. This task may be missing: an evaluator has no address.
    """

    task: str
    addresses: dict[str, str]

    @classmethod
    def of(cls, cluster: Cluster) -> Plan:
        """Returns the plan of a cluster."""
        others = [
            Task(role, index)
            for role in ("ps", "evaluator")
            for index in range(len(cluster.addresses.get(role, ())))
        ]
        listed = [*cluster.worker_tasks, *others]
        return cls(str(cluster.task), {str(each): cluster.address_of(each) for each in listed})

    @property
    def tasks(self) -> list[str]:
        """The tasks that have an address, in order."""
        return list(self.addresses)

    @property
    def hosts(self) -> list[str]:
        """The hosts in the addresses, each once."""
        return list(dict.fromkeys(map(self.host_of, self.addresses)))

    @property
    def digest(self) -> str:
        """A text that is equal for equal clusters."""
        listed = json.dumps(sorted(self.addresses.items()))
        return hashlib.sha256(listed.encode()).hexdigest()[:16]

    @property
    def several_hosts(self) -> bool:
        """True if the addresses name more than one host."""
        return len(self.hosts) > 1

    @property
    def is_reachable(self) -> bool:
        """True if other hosts can reach an address."""
        return not all(is_loopback(each) for each in self.addresses.values())

    @property
    def is_first_of_host(self) -> bool:
        """True if no task before this one has the same host."""
        if self.task not in self.addresses:
            return not self.addresses
        mine = self.host_of(self.task)
        return next(each for each in self.addresses if self.host_of(each) == mine) == self.task

    def for_task(self, task: str) -> Plan:
        """Returns the same cluster as another task sees it."""
        return dataclasses.replace(self, task=task)

    def host_of(self, task: str) -> str:
        """Returns the host in a task's address."""
        return split_address(self.addresses[task])[0]

    def split(self, task: str) -> tuple[str, int]:
        """Returns the host and the port in a task's address."""
        return split_address(self.addresses[task])

    def place(self, task: str) -> tuple[int, int, str]:
        """Returns a key that sorts tasks; also those that the cluster does not list."""
        role, _, index = task.partition(" ")
        at = self.tasks.index(task) if task in self.addresses else len(self.addresses)
        return at, ROLES.index(role) if role in ROLES else len(ROLES), index.zfill(9)

    def name(self, task: str) -> str:
        """Returns the name of a task in messages, such as "worker 2 (10.0.0.3:2222)"."""
        return f"{task} ({self.addresses[task]})" if task in self.addresses else task

    def names(self, tasks: list[str]) -> str:
        """Returns the names of some tasks; of many the first ones."""
        ordered = sorted(tasks, key=self.place)
        shown = ", ".join(self.name(each) for each in ordered[:4])
        return shown if len(ordered) <= 4 else f"{shown} and {len(ordered) - 4} more"
