"""Starts workers that join others which train already, and tells each the workers before it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Callable, Mapping, Protocol

from tf_strategies.launcher.cluster_plan import PlannedProcess, tf_config_of
from tf_strategies.launcher.machines import Machine
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.share import Share
from tf_strategies.launcher.supervisor import Job, Supervisor, say
from tf_strategies.launcher.task_output import PlainOutputs
from tf_strategies.restarted import RESTARTED

__all__ = ["Growth", "Starter"]


class Starter(Protocol):
    """Starts workers."""

    def ended(self, machine: Machine, process: LaunchedProcess) -> None:
        """Notes that a worker of a machine has ended."""

    def require_gpus(self, share: Share) -> None:
        """Raises ValueError if this machine has not enough GPUs for a share."""

    def announce(self, share: Share) -> None:
        """Says what will start on this machine."""

    def start(self, machine: Machine, share: Share, more: Mapping[str, str]) -> LaunchedProcess:
        """Starts the only process of a share on a machine, with further variables."""


class Growth:
    """Gives each worker a place, and makes its job. Further ones may start while others train.

    A worker keeps its machine and its address until all start again.

    Args:
        share: how workers are run. The processes of its plan do not matter.
        places: returns how many workers each machine may run now.
        most: the number of workers that may run at once.
        starter: starts the workers.
    """

    def __init__(
        self, share: Share, places: Callable[[], Mapping[Machine, int]], most: int, starter: Starter
    ) -> None:
        self._share, self._places, self._most, self._starter = share, places, most, starter
        self._without_gpus: set[Machine] = set()
        self._workers: list[tuple[Machine, str]] = []  # the machine and the address of each
        # The number of workers with which the job is to begin, and with which it has begun.
        self._wanted = self._begun = 0
        self._processes: dict[int, LaunchedProcess] = {}  # the last of each worker

    def begin(self, workers: int) -> None:
        """Gives the first workers their places.

        Raises:
            ValueError: there are not so many places.
        """
        while len(self._workers) < workers and self._find_place():
            pass
        if len(self._workers) < workers:
            raise ValueError(
                f"--hosts-from names places for {len(self._workers)} workers, fewer than --workers {workers}"
            )
        self._wanted = self._begun = workers

    def begun(self) -> list[PlannedProcess]:
        """Returns the first workers. They know only one another."""
        return [self._planned(index, self._begun) for index in range(self._begun)]

    def supervisor(self) -> Supervisor:
        """Returns a supervisor that starts the first workers, and says so. After another one, they get new places.

        Then there may be fewer of them, but not fewer than `min_workers` of the share.

        Raises:
            ValueError: there are too few places, this machine has not enough GPUs, or a log file cannot be opened.
        """
        if self._processes:
            self._begin_again()
        machines = {machine for machine, _ in self._workers}
        here = [planned for planned in self.begun() if not self._workers[planned.index][0].target]
        names = [planned.name for planned in here]
        jobs = [self._job(index) for index in range(self._begun)]
        supervisor = self._share.supervising(jobs, names, growth=self)
        if here:
            most = self._workers[here[0].index][0].most
            share = dataclasses.replace(self._share, plan=tuple(here), after=most - len(here))
            self._starter.require_gpus(share)
            if len(machines) == 1:
                self._starter.announce(share)
                return supervisor
        processes = "process" if self._begun == 1 else "processes"
        hosts = "host" if len(machines) == 1 else "hosts"
        say(f"starting {self._begun} {processes} on {len(machines)} {hosts}")
        return supervisor

    def _begin_again(self) -> None:
        self._processes.clear()
        self._workers.clear()
        while len(self._workers) < self._wanted and self._find_place():
            pass
        self._begun = len(self._workers)
        least = self._share.min_workers or 1
        if self._begun < least:
            raise ValueError(
                f"--hosts-from names places for {self._begun} workers, fewer than --min-workers {least}; start tfs-run again "
                "when there are more"
            )

    def has_place(self, index: int) -> bool:
        """Returns True if a worker may run now: its machine has a place for it, and not too many others run."""
        machine = self._workers[index][0]
        others = sum(each.running for other, each in self._processes.items() if other != index)
        return others < self._most and self._position(index) < self._places().get(machine, 0)

    def ended(self, index: int) -> None:
        """Notes that a worker has ended."""
        self._starter.ended(self._workers[index][0], self._processes[index])

    def next_job(self) -> Job | None:
        """Returns the job of a further worker, with the next index; None if there is no place for one."""
        if not self._find_place():
            return None
        index = len(self._workers) - 1
        machine = self._workers[index][0]
        if not machine.target:
            try:
                self._starter.require_gpus(self._share_of(index, index + 1))
            except ValueError as error:
                self._without_gpus.add(machine)
                del self._workers[index]
                say(f"this machine takes no workers: {error}")
                return None
        return self._job(index)

    def _find_place(self) -> bool:
        """Gives a further worker a place, if there is one."""
        if sum(map(self._counts, range(len(self._workers)))) >= self._most:
            return False
        for machine, places in self._places().items():
            position = sum(each == machine for each, _ in self._workers)
            if position < places and machine not in self._without_gpus:
                self._workers.append((machine, machine.address(position)))
                return True
        return False

    def _counts(self, index: int) -> bool:
        """Returns True if a worker runs or may run."""
        process = self._processes.get(index)
        return self.has_place(index) or (process is not None and process.running)

    def _position(self, index: int) -> int:
        """Returns the number of workers before this one on its machine."""
        machine = self._workers[index][0]
        return sum(each == machine for each, _ in self._workers[:index])

    def _job(self, index: int) -> Job:
        machine, address = self._workers[index]
        start = functools.partial(self._start, index)
        outputs = PlainOutputs() if machine.target else None
        return Job(f"worker {index}", start, "worker", address, start, outputs)

    def _start(self, index: int) -> LaunchedProcess:
        """Starts a worker. It knows all workers before it, and when it starts again, further ones that run or have a place."""
        again = index in self._processes
        share = self._share_of(index, self._listed(index, again))
        more = {RESTARTED: "1"} if again else {}
        self._processes[index] = self._starter.start(self._workers[index][0], share, more)
        return self._processes[index]

    def _share_of(self, index: int, listed: int) -> Share:
        """Returns the share of a worker, which knows the first workers up to a number."""
        machine, position = self._workers[index][0], self._position(index)
        plan = (self._planned(index, listed),)
        return dataclasses.replace(self._share, plan=plan, before=position, after=machine.most - position - 1)

    def _planned(self, index: int, listed: int) -> PlannedProcess:
        machine, address = self._workers[index]
        config = tf_config_of([each for _, each in self._workers[:listed]], index)
        return PlannedProcess("worker", index, machine.host, address, config)

    def _listed(self, index: int, again: bool) -> int:
        """Returns the number of workers in the TF_CONFIG of a worker. Those that cannot come would only be waited for."""
        if not again:
            return max(self._begun, index + 1)
        return max([index + 1, *(other + 1 for other in self._processes if self._counts(other))])
