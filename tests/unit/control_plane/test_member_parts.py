"""The parts of a member that need no group: its attempts to join, and its exchanges."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import types
from typing import Any, Callable, List, Optional

import pytest

from tf_strategies.control_plane import joining
from tf_strategies.control_plane.distrust import DistrustError
from tf_strategies.control_plane.exchanging import Exchanging
from tf_strategies.control_plane.joining import Setback
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import BootstrapError, Code
from tf_strategies.secret import SECRET_FILE

MINE, FIRST = "worker 1 (b:2)", "worker 0 (a:1)"


class Clock:
    """Time that passes in pauses alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.pauses = 0.0, []
        monkeypatch.setattr(joining, "time", types.SimpleNamespace(monotonic=lambda: self.now))

    def pause(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 3))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def join(clock: Clock, outcomes: List[Optional[Setback]], timeout: float = 60.0) -> None:
    """The last outcome is that of all further attempts."""

    def attempt() -> Optional[Setback]:
        return outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]

    joining.join(attempt, clock.pause, mine=MINE, first=FIRST, timeout=timeout)


def test_attempts_come_less_often_until_one_succeeds(clock: Clock) -> None:
    join(clock, [Setback("it is not there", "")] * 6 + [None])
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_last_reason_is_named_when_the_time_is_over(clock: Clock) -> None:
    with pytest.raises(
        BootstrapError, match=r"worker 1 \(b:2\) did not join a group within 7 s: .* still waits; start"
    ):
        join(clock, [Setback("it is not there", ""), Setback("it still waits", "")], timeout=7)
    assert 6 <= clock.now < 7


def test_distrust_counts_after_ten_seconds_unless_it_has_passed(clock: Clock) -> None:
    distrust = Setback("it has another secret", SECRET_FILE)
    join(clock, [distrust, None])
    begun = clock.now
    with pytest.raises(
        DistrustError, match=f"it has another secret; give all tasks the same .*{SECRET_FILE}"
    ):
        join(clock, [distrust])
    assert 9 <= clock.now - begun < 10


class Group:
    """Stands for what an exchange asks of the rest of its member."""

    def __init__(self, send: Callable[[Message], Any] = lambda message: None, timeout: float = 30.0) -> None:
        self.changed = threading.Condition()
        self.failure: Optional[Failure] = None
        self.exchanging = Exchanging(
            self.changed,
            send,
            lambda: self.failure,
            lambda: self.failure is not None,
            rank=1,
            names=(FIRST, MINE, "worker 2 (c:3)"),
            timeout=timeout,
        )

    def answer(self, sequence: int, first: int, *payloads: dict) -> None:
        with self.changed:
            self.exchanging.on_gathered({"sequence": sequence, "first": first, "payloads": payloads})
            self.changed.notify_all()


def test_payloads_come_by_rank_in_whatever_parts_they_arrive() -> None:
    sent: List[Message] = []

    def send(message: Message) -> None:
        sent.append(message)
        sequence = message["sequence"]
        group.answer(sequence, 1, {"rank": 1}, {"rank": 2})
        group.answer(sequence + 7, 0, {"rank": "of another exchange"})
        group.answer(sequence, 0, {"rank": 0})

    group = Group(send)
    for number in range(2):
        assert group.exchanging.exchange({"a": 1}, "addresses") == [{"rank": rank} for rank in range(3)]
        assert (sent[number]["sequence"], sent[number]["what"]) == (number, "addresses")


def test_a_failed_group_ends_an_exchange_with_its_cause() -> None:
    group = Group()
    group.failure = Failure(Code.UNAVAILABLE, "worker 2 is lost")
    begun = time.monotonic()
    with pytest.raises(BootstrapError, match="worker 2 is lost"):
        group.exchanging.exchange({}, "addresses")
    assert time.monotonic() - begun < 10


def test_an_exchange_that_is_late_names_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tf_strategies.control_plane.exchanging.EXTRA_SECONDS", 0.0)
    with pytest.raises(
        BootstrapError, match=r"'addresses' was not complete within 0\.1 s, and worker 0 \(a:1\)"
    ):
        Group(timeout=0.1).exchanging.exchange({}, "addresses")


def test_a_wait_is_not_quiet_while_the_process_does_not_run() -> None:
    """A real stop: the other process may have moved on, and the data that this one waits for may be there."""
    program = (
        "import sys\nfrom tf_strategies.control_plane.messages import Wait\n"
        "from tf_strategies.control_plane.monitor import Monitor\n"
        "monitor = Monitor(lambda: Wait(4, 60.0, 60.0, 'sum'), lambda wait: print(wait.quiet, flush=True), lambda: None)\n"
        "monitor.start()\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert float(process.stdout.readline()) == 60.0
        process.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        process.send_signal(signal.SIGCONT)
        quiet = [float(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
    assert min(quiet) < 0.5
    assert max(quiet) < 3.5
