"""Starts workers that join others which train already, and tells each the workers before it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Callable, Mapping, Sequence

from tf_strategies.launcher.cluster_plan import PlannedProcess, tf_config_of
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.supervisor import Job
from tf_strategies.restarted import RESTARTED

__all__ = ["Growth", "begins_with"]


def begins_with(plan: Sequence[PlannedProcess], workers: int) -> list[PlannedProcess]:
    """Returns the first workers of a plan. They know only one another."""
    addresses = [planned.address for planned in plan[:workers]]
    return [
        dataclasses.replace(planned, tf_config=tf_config_of(addresses, planned.index))
        for planned in plan[:workers]
    ]


class Growth:
    """Makes the jobs of workers, of which further ones may start while others train.

    Args:
        plan: all workers that there may be, by index.
        command: the command of each.
        envs: the environment of each.
        begun: the number of workers with which the job begins.
        places: returns the number of workers that may run now.
    """

    def __init__(
        self,
        plan: Sequence[PlannedProcess],
        command: Sequence[str],
        envs: Sequence[Mapping[str, str]],
        begun: int,
        places: Callable[[], int],
    ) -> None:
        self._plan, self._command, self._envs = plan, command, envs
        self._begun, self._places = begun, places
        self._processes: dict[int, LaunchedProcess] = {}  # the last of each worker

    @property
    def places(self) -> int:
        """The number of workers that may run now."""
        return min(self._places(), len(self._plan))

    def job(self, index: int) -> Job:
        """Returns the job of a worker."""
        start = functools.partial(self.start, index)
        return Job(self._plan[index].name, start, self._plan[index].role, self._plan[index].address, start)

    def start(self, index: int) -> LaunchedProcess:
        """Starts a worker. It knows all workers before it, and when it starts again, further ones that run or have a place."""
        again = index in self._processes
        addresses = [planned.address for planned in self._plan[: self._listed(index, again)]]
        env = {**self._envs[index], "TF_CONFIG": tf_config_of(addresses, index)}
        if again:
            env[RESTARTED] = "1"
        self._processes[index] = LaunchedProcess(self._plan[index].name, self._command, env)
        return self._processes[index]

    def _listed(self, index: int, again: bool) -> int:
        """Returns the number of workers in the TF_CONFIG of a worker. Those that cannot come would only be waited for."""
        if not again:
            return max(self._begun, index + 1)
        running = [other for other, process in self._processes.items() if process.running]
        return max(index + 1, min(self.places, len(self._processes)), *(other + 1 for other in running))
