"""Tests what the coordinator decides with, without processes: gatherings, causes of failures, stalls, comparisons."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.our_logs import our_messages
from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator import (
    failure_decision,
    group_life,
    leaving,
    roster,
    stall_inspector,
)
from tf_strategies.control_plane.coordinator.comparisons import FirstPayloads
from tf_strategies.control_plane.coordinator.exchanges import Gathering
from tf_strategies.control_plane.messages import Failure, Wait
from tf_strategies.errors import Code

NAMES = ("worker 0 (a:1)", "worker 1 (b:1)", "worker 2 (c:1)")


def three_workers(index: int = 0) -> Cluster:
    task = {"type": "worker", "index": index}
    return Cluster.from_tf_config(json.dumps({"cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": task}))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (roster, stall_inspector, failure_decision, group_life, leaving):
        monkeypatch.setattr(module, "time", clock)
    return clock


def members(*ranks):
    found = roster.Roster(three_workers())
    for rank in ranks or range(3):
        found.entries[rank] = roster.Entry(connection=None, process=f"process {rank}")
    return found


# ---- the end of rank 0


class Sink:
    def send(self, message):
        del message


@pytest.fixture
def ending(clock):
    """Three members, of which rank 1 was late and rank 2 knows of that."""
    found = members()
    for entry in found.entries.values():
        entry.connection = Sink()
    life = group_life.GroupLife(found)
    life.run()
    life.fail(Failure(Code.DEADLINE_EXCEEDED, "rank 1 is late", frozenset({1})))
    ending = leaving.Leaving(life, reports=None)
    ending.on_aborted(2, {})
    return ending


def test_rank_0_ends_when_a_late_member_knows_of_the_failure(ending):
    assert not ending.is_settled(latecomers=False)
    ending.on_aborted(1, {})
    assert ending.is_settled(latecomers=False)


def test_rank_0_waits_a_second_for_a_late_member_that_is_stopped(ending, clock):
    clock.now += 0.9
    assert not ending.is_settled(latecomers=False)
    clock.now += 0.2
    assert ending.is_settled(latecomers=False)


# ---- gatherings


@given(st.lists(st.integers(0, 900_000), min_size=1, max_size=8))
def test_replies_carry_all_payloads_by_rank_within_the_limit(sizes):
    gathering = Gathering(7, 0, "x")
    for rank, size in enumerate(sizes):
        gathering.payloads[rank] = {"data": "a" * size}
    found = {}
    for reply in gathering.replies(len(sizes)):
        assert len(messages.encode(reply)) <= messages.MAX_MESSAGE_BYTES
        assert reply["sequence"] == 7
        found.update(
            {reply["first"] + offset: len(entry["data"]) for offset, entry in enumerate(reply["payloads"])}
        )
    assert found == dict(enumerate(sizes))


def test_a_gathering_knows_who_is_missing():
    gathering = Gathering(0, 1, "x")
    gathering.payloads[1] = {}
    assert gathering.missing(3) == [0, 2]


# ---- decisions


def test_a_decision_waits_for_all_or_for_its_time(clock):
    found = failure_decision.FailureDecision(0, Failure(Code.MISMATCH, "m"), 3, -1, asked=[0, 1])
    assert not found.ready()
    found.texts = {0: "x", 1: "y"}
    assert found.ready()
    found.texts = {0: "x"}
    clock.now += failure_decision.COLLECT_SECONDS
    assert found.ready()


def test_a_mismatch_without_a_visible_difference_keeps_the_local_message(clock):
    found = failure_decision.FailureDecision(1, Failure(Code.MISMATCH, "sizes differ"), 3, 2, asked=[0, 1, 2])
    found.texts = dict.fromkeys(range(3), "all_reduce 'g'")
    code, text, lost, *_ = found.conclude(NAMES)
    assert code == Code.MISMATCH
    assert not lost
    assert text.startswith(f"{NAMES[1]} reports: sizes differ (the other side is {NAMES[2]}); collective 3: ")


def test_one_that_does_not_answer_is_named(clock):
    found = failure_decision.FailureDecision(0, Failure(Code.DEADLINE_EXCEEDED, "late"), 3, -1, asked=[0, 1])
    found.texts = {0: "barrier"}
    assert f"{NAMES[1]}: no answer" in found.conclude(NAMES).message


@pytest.mark.parametrize("answers", [{2: "reduce 'g'"}, {}])
def test_a_deadline_names_the_one_in_no_collective_and_not_the_one_that_waits_too(clock, answers):
    found = failure_decision.FailureDecision(
        0, Failure(Code.DEADLINE_EXCEEDED, f"waited for {NAMES[1]}"), 3, 1, asked=[0, 1, 2]
    )
    found.texts = {0: "reduce 'g'", 1: "reduce 'g'", **answers}
    found.waited = {0: 10.2, 1: 9.9, **dict.fromkeys(answers, -1.0)}
    code, text, lost, *_ = found.conclude(NAMES)
    assert code == Code.DEADLINE_EXCEEDED
    assert text.startswith(
        f"{NAMES[2]} did not take part in reduce 'g', in which {NAMES[0]}, {NAMES[1]} waited 10 s; see"
    )
    assert lost == {2}


def test_a_deadline_while_all_wait_keeps_the_local_message(clock):
    found = failure_decision.FailureDecision(0, Failure(Code.DEADLINE_EXCEEDED, "late"), 3, 1, asked=[0, 1])
    found.texts, found.waited = {0: "reduce", 1: "reduce"}, {0: 10.0, 1: 4.0}
    assert found.conclude(NAMES).message.startswith(f"{NAMES[0]} reports: late")


def test_a_report_about_no_instance_describes_none(clock):
    found = failure_decision.FailureDecision(0, Failure(Code.INTERNAL, "broken wire"), -1, 1, asked=[0, 1])
    text = found.conclude(NAMES).message
    assert text == f"{NAMES[0]} reports: broken wire (the other side is {NAMES[1]}); see the workers' logs"


@pytest.mark.parametrize(
    "why, told", [("", "its script ended"), ("ValueError: x", "its script ended with ValueError: x")]
)
def test_a_broken_connection_to_one_that_said_farewell_is_told_as_its_leave(clock, why, told):
    found = failure_decision.FailureDecision(1, Failure(Code.UNAVAILABLE, "UCX says no"), 3, 2, asked=[0, 1])
    found.texts = {1: "all_reduce 'g'", 0: "nothing"}
    code, text, lost, *_ = found.conclude(NAMES, {2: why})
    assert code == Code.UNAVAILABLE
    assert text.startswith(
        f"{NAMES[2]} left the group ({told}) while {NAMES[1]} was still training, waiting in all_reduce 'g'"
    )
    assert lost == ({2} if why else set())  # who ends without an error has simply fewer steps
    assert found.conclude(NAMES, {0: why}).lost == {2}
    assert found.conclude(NAMES, {0: why}).message.startswith(f"{NAMES[1]} reports: UCX says no")


def test_a_difference_outside_of_collectives_keeps_its_reason():
    why = Failure(Code.MISMATCH, "the rows of worker 2 differ")
    found = failure_decision.FailureDecision(1, why, -1, -1, asked=[0, 1])
    found.texts = {0: "all_reduce 'g'", 1: "nothing"}
    assert found.conclude(NAMES).message.startswith(f"{NAMES[1]} reports: the rows of worker 2 differ; ")


# ---- stalls


def wait(found, clock, seconds, states, step=1.0, moving=()):
    """Lets members report, each second, waits in the instances of `states` by rank; the first failure.

    Data move on the ranks `moving`.
    """
    inspector = stall_inspector.StallInspector(found)
    start = clock.now
    while clock.now - start < seconds:
        clock.now += step
        for rank, instance in states.items():
            waited = clock.now - start
            quiet = 0.3 if rank in moving else waited
            found.note_waiting(rank, Wait(instance, waited, quiet, f"reduce {instance}"))
        failure = inspector.inspect()
        if failure is not None:
            return failure
    return None


def test_all_waiting_in_the_same_collective_is_no_stall(clock):
    assert wait(members(), clock, 100, {0: 5, 1: 5, 2: 5}) is None


def test_all_waiting_crosswise_is_one(clock):
    found = members()
    failure = wait(found, clock, 10, {0: 5, 1: 6, 2: 5})
    assert failure.code == Code.MISMATCH
    assert (
        f"{NAMES[0]}, {NAMES[2]}: collective 5, reduce 5; {NAMES[1]}: collective 6, reduce 6"
        in failure.message
    )


def test_different_collectives_on_a_slow_network_are_no_stall_while_data_move(clock):
    assert wait(members(), clock, 100, {0: 5, 1: 6, 2: 5}, moving=[2]) is None


def test_a_member_that_goes_on_is_not_compared_by_what_it_said_before(clock):
    found = members()
    inspector = stall_inspector.StallInspector(found)
    for instance in range(40):  # each collective takes 2.5 s, and the ranks pass from one to the next in turn
        for rank in range(3):
            clock.now += 2.5 / 3
            found.note_waiting(rank, Wait(instance, 0.1, 0.1, "reduce"))
            assert inspector.inspect() is None


def test_a_stopped_member_is_not_compared_by_its_last_words(clock):
    found = members()
    found.note_waiting(1, Wait(5, 0.01, 0.01, "reduce 5"))
    assert wait(found, clock, 10, {0: 6, 2: 6}) is None


def test_the_same_instance_waited_for_again_is_a_new_wait(clock):
    found = members()
    found.note_waiting(0, Wait(5, 3.0, 3.0, "reduce"))
    clock.now += 1
    found.note_waiting(0, Wait(5, 0.2, 0.2, "reduce"))
    assert found.entries[0].waiting.since == clock.now


def test_waiting_for_members_in_no_collective_is_warned_of_sparsely(clock, caplog):
    caplog.set_level(logging.WARNING)
    assert wait(members(), clock, 45, {0: 5}) is None
    texts = our_messages(caplog)
    assert len(texts) == 3  # after 10, 20 and 40 s
    assert f"{NAMES[0]} has waited 10 s in reduce 5 for {NAMES[1]}, {NAMES[2]}" in texts[0]


def test_a_short_wait_is_not_warned_of(clock, caplog):
    wait(members(), clock, 9, {0: 5})
    assert our_messages(caplog) == []


def test_waiting_for_one_that_left_ends_after_a_second(clock):
    found = members()
    found.entries[2].gone, found.entries[2].left = True, clock.now
    failure = wait(found, clock, 10, {0: 5}, step=0.5)
    assert 1 < clock.now - found.entries[2].left <= 2
    assert failure.code == Code.UNAVAILABLE
    assert failure.message.startswith(f"{NAMES[2]} left the group (its script ended) while {NAMES[0]}")


def test_one_that_left_and_is_not_waited_for_is_no_failure(clock):
    found = members()
    found.entries[2].gone, found.entries[2].left = True, clock.now
    assert wait(found, clock, 60, {}) is None


def test_the_first_word_on_a_key_is_compared_with_each_later_one():
    words = FirstPayloads(3)
    assert words.add("t", "k", 1, "one") is None
    assert words.add("t", "other", 2, "apart") is None
    assert words.add("t", "k", 1, "again") is None
    assert words.add("t", "k", 0, "two") == (1, "one")
    assert words.add("t", "k", 2, "three") == (1, "one")
    assert words.add("t", "k", 0, "anew") is None


def test_words_that_some_never_speak_to_are_forgotten():
    words = FirstPayloads(2)
    for key in range(3000):
        assert words.add("t", str(key), 0, key) is None
    assert words.add("t", "2999", 1, "new") == (0, 2999)
    assert words.add("t", "0", 1, "new") is None
