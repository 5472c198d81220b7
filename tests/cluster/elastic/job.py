"""Runs the workers of the tests of elastic training, and compares their results with those of one process."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

import numpy as np

from tests.cluster.elastic.fit_worker import HOST_FAULTS
from tests.cluster.elastic.task import FIT, make_model, make_rows, make_schedule
from tests.support.processes import Process, ProcessGroup, ReservedPorts, tf_config
from tests.support.switch import Switch
from tf_strategies.options import ARBITER

__all__ = ["WORKER", "Job", "expected", "require_expected", "seconds_to_next_batch"]

_SECONDS = 120
_PORT = 22022
WORKER = "tests.cluster.elastic.fit_worker"


@functools.cache
def expected(normalized: bool = False) -> Dict[str, Any]:
    """The result of one process with the joint batches."""
    x, y = make_rows()
    model = make_model(normalized=normalized)
    history = model.fit(x, y, validation_data=(x, y), callbacks=[make_schedule()], **FIT)
    return {"history": history.history, "weights": [each.ravel() for each in model.get_weights()]}


class Job:
    """Workers with faults, by rank.

    With `meet`, they start again, and the others wait for them before this batch. They then do something `wrong`. With `hosts`,
    each worker has a host, and a fault can be "cut" or "mute", which the test does to its host when the worker has come to it.
    `arbiter` is the address of the arbiter, if they have one.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        data: str,
        faults: Dict[int, List[Any]],
        *,
        meet: int = 0,
        wrong: str = "",
        hosts: Optional[Switch] = None,
        worker: str = WORKER,
        backup: str = "",
        save_freq: Union[str, int] = "epoch",
        arbiter: str = "",
    ) -> None:
        self.plan = json.dumps(
            {
                "data": data,
                "faults": faults,
                "folder": str(folder),
                "meet": meet,
                "wrong": wrong,
                "backup": backup,
                "save_freq": save_freq,
            }
        )
        self._arbiter = arbiter
        self._meet, self._wrong, self._hosts, self._worker = meet, wrong, hosts, worker
        self._folder, self._size, self._faults = folder, size, faults
        self.names: List[str] = []
        self.lost: Dict[int, Process] = {}

    def run(self, *, fresh: bool = False) -> Dict[int, Process]:
        """Runs the workers until those without a fault have ended. Returns all, by rank; `fresh` as for `start_workers`."""
        with self._addresses() as addresses, ProcessGroup(self._folder) as group:
            start = functools.partial(self._start, group, addresses, fresh)
            self.names = [f"worker {rank} ({address})" for rank, address in enumerate(addresses)]
            workers = [start(rank, again=False) for rank in range(self._size)]
            self.lost = {rank: workers[rank] for rank in self._faults}
            for rank in self._in_order():
                self._harm(rank)
            if self._meet:
                again = {rank: self._start_again(start, rank) for rank in self._in_order()}
                workers = [again.get(rank, worker) for rank, worker in enumerate(workers)]
                for rank, worker in enumerate(workers):
                    status = 3 if self._wrong and rank in self._faults else 0
                    assert worker.wait(_SECONDS) == status, worker.log()
                return dict(enumerate(workers))
            for rank in set(range(self._size)) - set(self._faults):
                assert workers[rank].wait(_SECONDS) == 0, workers[rank].log()
            for rank, (kind, _) in self._faults.items():
                if kind == "stop":
                    workers[rank].signal(signal.SIGCONT)
                workers[rank].wait(_SECONDS)
            return dict(enumerate(workers))

    @contextlib.contextmanager
    def _addresses(self) -> Iterator[Sequence[str]]:
        if self._hosts is not None:
            yield [f"{address}:{_PORT}" for address in self._hosts.addresses[: self._size]]
            return
        with ReservedPorts(self._size) as ports:
            yield ports.addresses

    def _start(
        self, group: ProcessGroup, addresses: Sequence[str], fresh: bool, rank: int, again: bool
    ) -> Process:
        env = {"TF_CONFIG": tf_config({"worker": addresses}, "worker", rank)}
        if self._arbiter:
            env[ARBITER] = self._arbiter
        name, given = f"worker{rank}", [self.plan]
        if again:
            env["TF_STRATEGIES_RESTARTED"] = "1"
            name, given = f"{name}-again", [*given, "again"]
        if not fresh:
            namespace = "" if self._hosts is None else self._hosts.name(rank)
            return group.start_preloaded(name, self._worker, *given, env=env, namespace=namespace)
        command = [sys.executable, "-m", self._worker, *given]
        return group.start(
            name, command if self._hosts is None else self._hosts.inside(rank, *command), env=env
        )

    def _harm(self, rank: int) -> None:
        """Waits until a worker has come to a fault of its host, and brings it about."""
        kind = self._faults[rank][0]
        if self._hosts is not None and kind in HOST_FAULTS:
            self.lost[rank].wait_for_text("^fault ", _SECONDS)
            (self._hosts.cut if kind == "cut" else self._hosts.mute)(rank)
            Path(self._folder, f"{kind}-{rank}").touch()

    def _in_order(self) -> List[int]:
        moments = {rank: moment for rank, (_, moment) in self._faults.items()}
        return sorted(moments, key=lambda rank: moments[rank] if isinstance(moments[rank], int) else 0)

    def _start_again(self, start: Callable[..., Process], rank: int) -> Process:
        self.lost[rank].wait(_SECONDS)
        if self._hosts is not None:
            self._hosts.mend(rank)
        return start(rank, again=True)

    def results(self, workers: Dict[int, Process]) -> List[Dict[str, Any]]:
        """Returns the results of the survivors, after comparing them with one another."""
        survivors = [rank for rank in workers if rank not in self._faults or (self._meet and not self._wrong)]
        results = [json.loads(re.search("^result (.*)$", workers[rank].log(), re.M)[1]) for rank in survivors]
        assert [each["rank"] for each in results] == list(range(len(survivors)))
        for each in results:
            assert each["size"] == len(survivors)
            assert each["weights"] == results[0]["weights"]
            assert each["history"] == results[0]["history"]
        return results


def require_expected(result: Dict[str, Any], tolerance: float = 1e-5, normalized: bool = False) -> None:
    """Requires the weights and the logs of one process; `normalized` as for `make_model`."""
    wanted_result = expected(normalized)
    assert len(result["weights"]) == len(wanted_result["weights"])
    for found, wanted in zip(result["weights"], wanted_result["weights"]):
        np.testing.assert_allclose(found, wanted, atol=tolerance)
    for name, values in wanted_result["history"].items():
        np.testing.assert_allclose(result["history"][name], values, atol=tolerance, err_msg=name)


def seconds_to_next_batch(worker: Process, lost: Process) -> float:
    """Returns how long after the fault of a worker another one has finished a batch."""
    fault = float(re.search(r"^fault (\S+)$", lost.log(), re.M)[1])
    return min(
        at - fault for at in map(float, re.findall(r"^batch \d+ (\S+)$", worker.log(), re.M)) if at > fault
    )
