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
    """Makes the jobs of workers that start while others train.

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
        self._known, self._places = begun, places

    @property
    def places(self) -> int:
        """The number of workers that may run now."""
        return min(self._places(), len(self._plan))

    def job(self, index: int) -> Job:
        """Returns the job of a worker that joins."""
        start = functools.partial(self.start, index)
        return Job(self._plan[index].name, start, self._plan[index].role, self._plan[index].address, start)

    def start(self, index: int) -> LaunchedProcess:
        """Starts a worker while others train. It knows all workers that have been started before."""
        self._known = max(self._known, index + 1)
        addresses = [planned.address for planned in self._plan[: self._known]]
        env = {**self._envs[index], RESTARTED: "1", "TF_CONFIG": tf_config_of(addresses, index)}
        return LaunchedProcess(self._plan[index].name, self._command, env)
