"""The places of workers that start while others train, or start again, and the workers in their TF_CONFIG."""

from __future__ import annotations

import json
import signal
from typing import Iterator, Mapping

import pytest

from tf_strategies.launcher.growth import Growth
from tf_strategies.launcher.machines import Machine
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.share import Share

pytestmark = pytest.mark.any_line

COMMAND = ("sh", "-c", 'echo "$TF_CONFIG"; echo "$TF_STRATEGIES_RESTARTED"; exec sleep 60')


class Here:
    """Starts the workers of all machines on this one."""

    def __init__(self) -> None:
        self.shares: dict[int, tuple[int, int]] = {}

    def ended(self, machine: Machine, process: LaunchedProcess) -> None:
        raise AssertionError("no supervisor runs")

    def require_gpus(self, share: Share) -> None:
        raise ValueError("there are no GPUs")

    announce = require_gpus

    def start(self, machine: Machine, share: Share, more: Mapping[str, str]) -> LaunchedProcess:
        (planned,) = share.plan
        self.shares[planned.index] = (share.before, share.after)
        assert planned.address.startswith(f"{machine.host}:")
        return LaunchedProcess(planned.name, share.command, {"TF_CONFIG": planned.tf_config, **more})


class Workers:
    """Starts workers of a job that began with two, and loses them.

    Attributes:
        places: of each machine.
    """

    def __init__(self, *slots: int, most: int | None = None) -> None:
        self._machines = [
            Machine(f"user@h{number}", f"h{number}", each, tuple(range(1000, 1000 + each)))
            for number, each in enumerate(slots)
        ]
        self.places = list(slots)
        self._starter = Here()
        self._growth = Growth(
            Share((), COMMAND, ()), self._places_of_machines, most or sum(slots), self._starter
        )
        self._growth.begin(2)
        self._growth.supervisor()
        self._jobs = [self._growth._job(index) for index in range(2)]
        self._processes: dict[int, LaunchedProcess] = {}

    def _places_of_machines(self) -> dict[Machine, int]:
        return dict(zip(self._machines, self.places))

    @property
    def shares(self) -> dict[int, tuple[int, int]]:
        """Returns how many workers of its machine come before and after each that has started."""
        return self._starter.shares

    def start(self, index: int) -> tuple[int, str]:
        """Returns the number of workers that the worker knows, and whether it is told that it starts again."""
        if index == len(self._jobs):
            further = self._growth.next_job()
            assert further is not None
            self._jobs.append(further)
        process = self._processes[index] = self._jobs[index].start()
        config, restarted = (process.streams[0].readline().decode().strip() for _ in range(2))
        assert json.loads(config)["task"]["index"] == index
        return len(json.loads(config)["cluster"]["worker"]), restarted

    def hosts(self) -> list[str]:
        """Returns the hosts of the workers with which the job begins."""
        return [planned.host for planned in self._growth.begun()]

    def start_all_again(self) -> None:
        self._growth.supervisor()
        self._jobs = [self._growth._job(index) for index in range(len(self.hosts()))]

    def has_place(self, index: int) -> bool:
        return self._growth.has_place(index)

    def next_is_none(self) -> bool:
        return self._growth.next_job() is None

    def lose(self, *indices: int) -> None:
        for index in indices:
            self._processes[index].signal(signal.SIGKILL)
            self._processes[index].read_all(10)

    def lose_all(self) -> None:
        self.lose(*(index for index, process in self._processes.items() if process.running))


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(4)
    yield made
    made.lose_all()


def test_a_worker_is_told_that_it_starts_again_only_if_it_has_run(workers: Workers) -> None:
    assert [workers.start(index) for index in range(4)] == [(2, ""), (2, ""), (3, ""), (4, "")]
    workers.lose(0, 3)
    assert [workers.start(index) for index in (0, 3)] == [(4, "1"), (4, "1")]


def test_a_worker_that_starts_again_does_not_wait_for_workers_without_a_place(workers: Workers) -> None:
    for index in range(4):
        workers.start(index)
    workers.places = [2]
    workers.lose(0)
    assert workers.start(0) == (4, "1")  # worker 3 runs
    workers.lose(1, 3)
    assert workers.start(1) == (3, "1")
    workers.lose(0, 1, 2)
    assert workers.start(0) == (2, "1")  # worker 1 has a place
    workers.places = [4]
    assert workers.start(1) == (4, "1")


def test_workers_are_spread_over_machines_and_a_new_machine_takes_those_of_one_that_has_gone() -> None:
    workers = Workers(2, 1, 2, most=3)
    try:
        workers.places = [2, 1, 0]
        assert [workers.start(index) for index in range(3)] == [(2, ""), (2, ""), (3, "")]
        assert workers.shares == {0: (0, 1), 1: (1, 0), 2: (0, 0)}
        workers.places = [2, 0, 2]
        assert workers.next_is_none()  # worker 2 still runs
        workers.lose(2)
        assert workers.start(3) == (4, "")  # on the third machine, under the next index
        assert workers.shares[3] == (0, 1)
        assert workers.next_is_none()  # three may run at once
        workers.places = [2, 1, 2]
        assert not workers.has_place(2)
        workers.lose(0)
        assert workers.has_place(2)
    finally:
        workers.lose_all()


def test_this_machine_takes_no_workers_for_which_it_has_no_gpus(capfd: pytest.CaptureFixture[str]) -> None:
    places = {Machine("user@h", "h", 1, (1000,)): 1}
    growth = Growth(Share((), COMMAND, ()), lambda: places, 3, Here())
    growth.begin(1)
    growth.supervisor()
    places[Machine("", "me", 2, (1000, 1001))] = 2
    assert growth.next_job() is growth.next_job() is None
    assert capfd.readouterr().err.count("this machine takes no workers: there are no GPUs") == 1


def test_all_start_again_on_the_machines_that_are_left(capfd: pytest.CaptureFixture[str]) -> None:
    workers = Workers(1, 1, 1)
    assert workers.hosts() == ["h0", "h1"]
    for places, hosts in (([1, 0, 1], ["h0", "h2"]), ([0, 1, 0], ["h1"])):
        workers.start(0)
        workers.lose_all()
        workers.places = places
        workers.start_all_again()
        assert workers.hosts() == hosts
    workers.start(0)
    workers.lose_all()
    workers.places = [0, 0, 0]
    with pytest.raises(ValueError, match="places for 0 workers, fewer than --min-workers 1"):
        workers.start_all_again()
    said = capfd.readouterr().err
    assert "starting 2 processes on 2 hosts" in said and "starting 1 process on 1 host" in said
