"""What two workers leave on servers while a fit runs; the servers are two logical devices of this process."""

from __future__ import annotations

import itertools
import threading
import time
from typing import List
from unittest import mock

import pytest

tf = pytest.importorskip("tensorflow")

from tests.support.processes import wait_until  # noqa: E402
from tf_strategies.errors import BootstrapError  # noqa: E402
from tf_strategies.keras.shared_progress import Pace, RefusedError  # noqa: E402
from tf_strategies.parameter_server.cluster.progress import ServerProgress  # noqa: E402
from tf_strategies.parameter_server.cluster.servers import LocalServers  # noqa: E402

_names = itertools.count()


class Worker(LocalServers):
    """One of two that use the two devices of this process."""

    size = 2

    def __init__(self, name: str, rank: int, timeout: float = 30.0) -> None:
        super().__init__(f"{name} of worker {rank}")
        self.name, self.rank, self.timeout = name, rank, timeout
        self.devices = [device.name for device in tf.config.list_logical_devices("CPU")][:2]


@pytest.fixture
def name() -> str:
    return f"progress {next(_names)}"


def progress_of(name: str, rank: int, timeout: float = 30.0, pace: Pace = Pace.OWN) -> ServerProgress:
    return ServerProgress(Worker(name, rank, timeout), 0, pace)


def lose(progress: ServerProgress, server: int) -> None:
    """As a start anew of that server."""
    tf.raw_ops.DestroyResourceOp(resource=progress._texts[server, "begin"].handle)


def test_workers_wait_for_the_chief_and_get_their_records(name: str) -> None:
    chief, worker = progress_of(name, 0), progress_of(name, 1)
    assert not chief.is_open() and not chief.is_torn()
    ended: List[float] = []
    waiting = threading.Thread(target=lambda: (worker.wait_until_open(), ended.append(time.monotonic())))
    with mock.patch.object(worker, "is_open", side_effect=worker.is_open) as looks:
        waiting.start()
        wait_until(lambda: looks.call_count > 1, 10, "the worker to look again")
    assert not ended
    opened_at = time.monotonic()
    chief.open([b"", b"\0\xff"])
    waiting.join(10)
    assert ended and ended[0] > opened_at
    assert worker.records() == chief.records() == [b"", b"\0\xff"]
    chief.keep(b"chief", "now")
    assert worker.records() == [b"chief", b"\0\xff"]
    worker.keep(b"worker", "now")
    again = progress_of(name, 1)
    again.wait_until_open()
    assert again.records() == [b"chief", b"worker"]


@pytest.mark.parametrize("server", [0, 1])
def test_a_server_that_lost_what_it_held_closes_the_fit_until_the_chief_opens_it(
    name: str, server: int
) -> None:
    chief, worker = progress_of(name, 0), progress_of(name, 1, timeout=0.3)
    chief.open([b"first", b"first"])
    worker.keep(b"later", "now")
    lose(chief, server)
    assert not chief.is_open() and chief.is_torn()
    with pytest.raises(BootstrapError, match=r"worker 1 waited 0\.3 s for worker 0 to begin fit 0"):
        worker.wait_until_open()
    chief.open([b"second", b"second"])
    worker.wait_until_open()
    assert worker.records() == [b"second", b"second"]


def test_a_chief_that_refuses_tells_why_and_may_open_later(name: str) -> None:
    chief, worker = progress_of(name, 0), progress_of(name, 1)
    chief.refuse("the file is damaged")
    with pytest.raises(RefusedError, match="worker 0 could not begin: the file is damaged"):
        worker.wait_until_open()
    assert not chief.is_open() and not chief.is_torn()
    chief.open([b"", b""])
    worker.wait_until_open()


def test_fits_do_not_share_what_they_leave(name: str) -> None:
    first = progress_of(name, 0)
    first.open([b"one", b"one"])
    second = ServerProgress(Worker(name, 0), 1, Pace.OWN)
    assert not second.is_open() and not second.is_torn()
    second.open([b"two", b"two"])
    assert (first.records(), second.records()) == ([b"one", b"one"], [b"two", b"two"])


def test_workers_in_step_wait_for_records_of_the_same_moment(name: str) -> None:
    chief, worker = (progress_of(name, rank, pace=Pace.IN_STEP) for rank in (0, 1))
    chief.open([b"", b""])
    worker.keep(b"old", "batch 4")
    chief.keep(b"chief", "batch 8")
    late = threading.Timer(0.3, worker.keep, (b"new", "batch 8"))
    late.start()
    assert chief.records("batch 8") == [b"chief", b"new"]
    late.join()
    assert chief.records() == [b"chief", b"new"]


def test_one_that_leaves_no_record_of_the_moment_is_waited_for_once(name: str) -> None:
    chief, worker = (progress_of(name, rank, pace=Pace.IN_STEP) for rank in (0, 1))
    chief.open([b"", b""])
    worker.keep(b"old", "batch 4")
    seconds = []
    for moment in ("batch 8", "batch 12"):
        chief.keep(b"chief", moment)
        begun = time.monotonic()
        assert chief.records(moment) == [b"chief", b"old"]
        seconds.append(time.monotonic() - begun)
    assert 4 < seconds[0] < 15 and seconds[1] < 2, seconds


def test_workers_at_their_own_pace_wait_for_no_record(name: str) -> None:
    chief, worker = (progress_of(name, rank, pace=Pace.SHARED) for rank in (0, 1))
    chief.open([b"", b""])
    worker.keep(b"old", "batch 4")
    chief.keep(b"chief", "batch 8")
    begun = time.monotonic()
    assert chief.records("batch 8") == [b"chief", b"old"]
    assert time.monotonic() - begun < 2
