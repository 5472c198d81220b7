"""Plans the processes of a cluster: their roles, hosts, ports and TF_CONFIG."""

from __future__ import annotations

import dataclasses
import json
from typing import Callable, Sequence

from tf_strategies.addresses import join_address

LOCAL_HOST = "127.0.0.1"
TRAINING_ROLES = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Counts:
    """The number of processes of each role."""

    workers: int
    chief: bool = False
    ps: int = 0
    evaluator: bool = False

    def tasks(self) -> list[tuple[str, int]]:
        """Returns (role, index) of every process: the chief, the workers, the servers, the evaluator."""
        listed = [("chief", 0)] if self.chief else []
        listed += [("worker", index) for index in range(self.workers)]
        listed += [("ps", index) for index in range(self.ps)]
        return [*listed, ("evaluator", 0)] if self.evaluator else listed


@dataclasses.dataclass(frozen=True)
class PlannedProcess:
    """One process of the cluster."""

    role: str
    index: int
    host: str
    address: str  # "" for the evaluator, to which nobody connects
    tf_config: str

    @property
    def name(self) -> str:
        """The name of the process in messages, such as "worker 0"."""
        return f"{self.role} {self.index}"

    @property
    def trains(self) -> bool:
        """Whether the process is a chief or a worker."""
        return self.role in TRAINING_ROLES


def plan_cluster(
    counts: Counts, hosts: Sequence[str], port_of: Callable[[str, int], int]
) -> list[PlannedProcess]:
    """Plans all processes of a cluster. Every host computes the same plan.

    The training processes are distributed over the hosts in order, in blocks of nearly equal size, and so are
    the servers. The evaluator runs on the first host.

    Args:
        counts: the number of processes of each role. At least one process must train.
        hosts: the hosts, at least one.
        port_of: returns the port of process n on a host.

    Raises:
        ValueError: a host would have nothing to run.
    """
    tasks = counts.tasks()
    training = [task for task in tasks if task[0] in TRAINING_ROLES]
    servers = [task for task in tasks if task[0] == "ps"]
    host_of = {("evaluator", 0): hosts[0], **_lay_over(training, hosts), **_lay_over(servers, hosts)}
    used = {host_of[task] for task in tasks}
    idle = [host for host in hosts if host not in used]
    if idle:
        raise ValueError(
            f"host {idle[0]} has no process to run: there are {len(training)} training processes for "
            f"{len(hosts)} hosts; start more workers or name fewer hosts"
        )
    addresses = {
        task: join_address(host_of[task], port_of(host_of[task], position))
        for position, task in enumerate(tasks)
        if task[0] != "evaluator"
    }
    cluster: dict[str, list[str]] = {}
    for (role, _), address in addresses.items():
        cluster.setdefault(role, []).append(address)
    return [
        PlannedProcess(
            role,
            index,
            host_of[(role, index)],
            addresses.get((role, index), ""),
            json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}),
        )
        for role, index in tasks
    ]


def tf_config_of(workers: Sequence[str], index: int) -> str:
    """Returns the TF_CONFIG of a worker, from the addresses of all workers that it knows."""
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": list(workers)}, "task": task})


def _lay_over(tasks: Sequence[tuple[str, int]], hosts: Sequence[str]) -> dict[tuple[str, int], str]:
    return {task: hosts[position * len(hosts) // len(tasks)] for position, task in enumerate(tasks)}
