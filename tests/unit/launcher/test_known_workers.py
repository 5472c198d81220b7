"""The workers in the TF_CONFIG of a worker that starts while others train, or starts again."""

from __future__ import annotations

import json
import signal
from typing import Iterator

import pytest

from tf_strategies.launcher.cluster_plan import LOCAL_HOST, Counts, plan_cluster
from tf_strategies.launcher.growth import Growth
from tf_strategies.launcher.process import LaunchedProcess

pytestmark = pytest.mark.any_line

COMMAND = ("sh", "-c", 'echo "$TF_CONFIG"; echo "$TF_STRATEGIES_RESTARTED"; exec sleep 60')


class Workers:
    """Starts workers of a job that began with two, and loses them."""

    def __init__(self) -> None:
        self.places = 4
        plan = plan_cluster(Counts(4), [LOCAL_HOST], lambda host, position: 1000 + position)
        self._growth = Growth(plan, COMMAND, [{}] * 4, 2, lambda: self.places)
        self._processes: dict[int, LaunchedProcess] = {}

    def start(self, index: int) -> tuple[int, str]:
        """Returns the number of workers that the worker knows, and whether it is told that it starts again."""
        process = self._processes[index] = self._growth.job(index).start()
        config, restarted = (process.streams[0].readline().decode().strip() for _ in range(2))
        assert json.loads(config)["task"]["index"] == index
        return len(json.loads(config)["cluster"]["worker"]), restarted

    def lose(self, *indices: int) -> None:
        for index in indices:
            self._processes[index].signal(signal.SIGKILL)
            self._processes[index].read_all(10)

    def lose_all(self) -> None:
        self.lose(*(index for index, process in self._processes.items() if process.running))


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.lose_all()


def test_a_worker_is_told_that_it_starts_again_only_if_it_has_run(workers: Workers) -> None:
    assert [workers.start(index) for index in range(4)] == [(2, ""), (2, ""), (3, ""), (4, "")]
    workers.lose(0, 3)
    assert [workers.start(index) for index in (0, 3)] == [(4, "1"), (4, "1")]


def test_a_worker_that_starts_again_does_not_wait_for_workers_without_a_place(workers: Workers) -> None:
    for index in range(4):
        workers.start(index)
    workers.places = 2
    workers.lose(0)
    assert workers.start(0) == (4, "1")  # worker 3 runs
    workers.lose(1, 3)
    assert workers.start(1) == (3, "1")
    workers.lose(0, 1, 2)
    assert workers.start(0) == (2, "1")  # worker 1 has a place
    workers.places = 4
    assert workers.start(1) == (4, "1")
