"""A communicator is watched on a thread: its failures, and waits that last."""

from __future__ import annotations

import queue

import pytest

from tf_strategies.errors import Code
from tf_strategies.native import core, watch
from tf_strategies.native.watch import Watch

_SECONDS = 10.0


class Core:
    """Stands for the C functions: what the next calls find."""

    def __init__(self) -> None:
        self.failures: queue.Queue = queue.Queue()
        self.waits: list = []

    def wait_failure(self, communicator: int, *, timeout: float) -> object:
        found = self.failures.get(timeout=_SECONDS)
        if found == "closed":
            raise KeyError(communicator)
        return found

    def oldest_waiting(self, communicator: int) -> object:
        seconds = self.waits.pop(0)
        return None if seconds is None else core.Waiting(3, seconds, 0.0, "all_reduce 'x'")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Core:
    made = Core()
    monkeypatch.setattr(watch.core, "wait_failure", made.wait_failure)
    monkeypatch.setattr(watch.core, "oldest_waiting", made.oldest_waiting)
    return made


def test_failures_are_passed_on_but_for_the_end(stand_in: Core) -> None:
    lost = core.Failure(Code.UNAVAILABLE, "lost", 3, 1)
    for each in (core.Failure(Code.CANCELLED, "closed", -1, -1), lost, "closed"):
        stand_in.failures.put(each)
    failures: list = []
    watching = Watch(7, failures.append, lambda: pytest.fail("nothing waits"))
    watching.start()
    watching.join()
    assert failures == [lost]


def test_each_long_wait_is_told_once(stand_in: Core) -> None:
    stand_in.waits = [None, 9.5, 10.5, 11.0, None, 0.1, 10.1, 10.6]
    for each in [None] * len(stand_in.waits) + ["closed"]:
        stand_in.failures.put(each)
    told: list = []
    watching = Watch(
        7, lambda failure: pytest.fail("nothing fails"), lambda: told.append(len(stand_in.waits))
    )
    watching.start()
    watching.join()
    assert told == [5, 1]
