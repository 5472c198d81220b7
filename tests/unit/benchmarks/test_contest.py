"""benchmarks.contest with groups of real processes that speak the protocol and only compute."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import contest
from benchmarks.contest import Command, Group, calls_for
from tests.support.processes import REPOSITORY, wait_until

pytestmark = pytest.mark.any_line

RANK = """
import pathlib, sys, threading
from benchmarks.contestant import serve

folder, rank, how = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def spin():
    while True:
        pass

def prepare(count):
    if how == "dies" and count == 2048:
        sys.exit("no room for 2048 elements")
    def run(calls):
        held = bytearray((rank + 1) * (8 << 20)) if how == "allocates" else b""
        return sum(range(calls * 20_000)) + len(held)
    return run

if how == "spins":
    threading.Thread(target=spin, daemon=True).start()
serve(folder, rank, barrier=lambda: None, prepare=prepare)
"""


def group(folder: Path, how: str, *, ranks: int = 1, stops: bool = False) -> Group:
    environment = {"PYTHONPATH": str(REPOSITORY)}
    commands = [
        Command([sys.executable, "-c", RANK, str(folder / how), str(rank), how], environment)
        for rank in range(ranks)
    ]
    return Group(how, commands, ranks, folder / how, stops=stops)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_memory_is_that_of_the_rank_that_needs_most(tmp_path):
    with group(tmp_path, "allocates", ranks=2) as both:
        answer = both.order(4 << 10, 3)
    assert 0 < answer.seconds < 10
    assert 14 << 20 < answer.extra_bytes < 20 << 20


def test_all_are_measured_in_every_round(tmp_path):
    with group(tmp_path, "one", ranks=2) as one, group(tmp_path, "two") as two:
        measured, failed = contest.contest([one, two], 4 << 10, 3)
    assert failed == {}
    assert list(measured) == ["one", "two"]
    for each in measured.values():
        assert len(each.seconds) == 3
        assert 3 <= each.calls <= 2000
        assert all(seconds > 0 for seconds in each.seconds)


def test_one_that_fails_falls_out_and_says_why(tmp_path):
    with group(tmp_path, "dies", ranks=2) as dies, group(tmp_path, "lives") as lives:
        first, none = contest.contest([dies, lives], 4 << 10, 1)
        second, failed = contest.contest([dies, lives], 8 << 10, 2)
    assert (set(first), none) == ({"dies", "lives"}, {})
    assert set(second) == {"lives"}
    assert "dies ended while it measured 8,192 bytes:\nno room for 2048 elements" in str(failed["dies"])


def test_one_that_does_not_answer_falls_out_and_is_ended_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(contest, "_ORDER_SECONDS", 1)
    with group(tmp_path, "slow", ranks=2) as slow:
        with pytest.raises(contest.GroupError, match="slow did not answer within 1 s"):
            slow.order(4 << 10, 1 << 20)
        assert [process.wait(timeout=5) for process in slow._processes] == [-signal.SIGKILL] * 2


@pytest.mark.parametrize(("stops", "least", "most"), [(True, 0, 0.05), (False, 0.1, 2)])
def test_one_that_is_stopped_takes_nothing_from_others(tmp_path, stops, least, most):
    with group(tmp_path, "spins", stops=stops) as spins, group(tmp_path, "other") as other:
        for each in (spins, other, spins, other):
            each.order(4 << 10, 2000)  # for half a second: processor time is told in ticks of 10 ms
        assert least <= spins.idle_share <= most
        assert other.idle_share < 0.05


def test_nobody_is_left_when_the_block_ends(tmp_path):
    with group(tmp_path, "spins", ranks=2, stops=True) as spins:
        spins.start()
        pids = spins._pids()
        assert all(map(alive, pids))
    assert len(pids) == 2
    assert not any(map(alive, pids))


def test_nobody_is_left_when_the_front_is_killed(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from tests.unit.benchmarks.test_contest import group\n"
        "with group(Path(sys.argv[1]), 'spins', ranks=2, stops=True) as spins:\n"
        "    spins.start(); print(*spins._pids(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as front:
        pids = [int(pid) for pid in front.stdout.readline().split()]
        front.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    wait_until(lambda: not any(map(alive, pids)), 10, "the end of stopped processes")


@pytest.mark.parametrize(
    ("seconds", "calls"), [(1e-6, 2000), (0.15e-3, 1000), (0.03, 5), (0.4, 3), (0, 2000)]
)
def test_calls_take_a_seventh_of_a_second(seconds, calls):
    assert calls_for(seconds) == calls
