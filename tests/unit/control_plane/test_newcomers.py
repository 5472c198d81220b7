"""Tasks that start while others train find their group and join it, over real connections."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import socket
import threading
import time
from typing import Iterator

import pytest

from tests.support.processes import ReservedPorts, wait_until
from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane import herald, newcomer
from tf_strategies.control_plane.agreement import terms_of
from tf_strategies.control_plane.control_plane import ControlPlane
from tf_strategies.control_plane.coordinator import Coordinator, Newcomers
from tf_strategies.control_plane.herald import Herald
from tf_strategies.control_plane.local_link import LocalLink
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.newcomer import Admission, Newcomer
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.control_plane.succession import Succession, newcomer_terms
from tf_strategies.errors import BootstrapError, JoinsLaterError, OthersTrainError

pytestmark = pytest.mark.any_line

SECRET = b"a secret of this test's cluster"
OPTIONS = {"the timeout": 60.0}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(newcomer, "_LOST_SECONDS", 0.8)
    monkeypatch.setattr(newcomer, "_HELD_SECONDS", 0.8)


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    with ReservedPorts(4) as ports:
        yield ports.addresses


def cluster_of(addresses: list[str], rank: int) -> Cluster:
    return Cluster({"worker": tuple(addresses)}, Task("worker", rank))


def asking(addresses: list[str], rank: int, options: dict[str, object] = OPTIONS) -> Newcomer:
    return Newcomer(cluster_of(addresses, rank), options, SECRET, None)


@contextlib.contextmanager
def group_of(cluster: Cluster, before: int = 0, most: int | None = None) -> Iterator[Coordinator]:
    """Serves as rank 0 of a group, which has formed if rank 0 is alone."""
    succession = Succession(before)
    terms = terms_of(cluster, succession.added_to(OPTIONS))
    known = Newcomers(cluster, newcomer_terms(cluster, OPTIONS), succession, most)
    coordinator = Coordinator(cluster, terms, 60.0, lambda seconds: None, known)
    coordinator.start()
    server = ControlServer("worker", cluster.address_of(cluster.task), 4, SECRET, coordinator.post)
    member = LocalLink(coordinator, lambda link, message: None)
    member.send(
        {"type": "hello", "rank": 0, "task": str(cluster.task), "process": "this one", "terms": terms}
    )
    try:
        if cluster.size == 1:
            wait_until(lambda: coordinator._life.running, 10, "the group")
        yield coordinator
    finally:
        server.stop()
        coordinator.stop()


def survivor(addresses: list[str], rank: int) -> Cluster:
    """The cluster in which this rank trains on alone."""
    return cluster_of(addresses, rank).without([Task("worker", each) for each in range(4) if each != rank])


def test_where_nobody_trains_a_task_waits_for_the_first_group(addresses):
    assert not asking(addresses, 2).finds_group(restarted=False)
    with group_of(cluster_of(addresses, 0)):
        assert not asking(addresses, 2).finds_group(restarted=False)


def test_a_task_that_was_started_again_gives_the_others_time_to_notice(addresses):
    start = time.monotonic()
    assert not asking(addresses, 2).finds_group(restarted=True)
    assert time.monotonic() - start >= 0.8


@pytest.mark.parametrize("rank", [1, 3])
def test_any_task_may_lead_the_group_that_trains(addresses, rank):
    with group_of(survivor(addresses, rank), before=77):
        assert asking(addresses, 0).finds_group(restarted=False)


def test_a_task_with_other_options_is_refused(addresses):
    differs = pytest.raises(BootstrapError, match=r"disagree about option the timeout: 60\.0 against 5")
    with group_of(survivor(addresses, 1), before=77), differs:
        asking(addresses, 2, {"the timeout": 5}).finds_group(restarted=True)


def test_a_second_process_of_a_task_that_trains_is_refused(addresses):
    with group_of(survivor(addresses, 1), before=77) as group:
        group.admissions._newcomers.absent.discard("worker 2")
        with pytest.raises(
            BootstrapError, match=r"worker 1 .* has a worker 2 .* already; end the other process"
        ):
            asking(addresses, 2).finds_group(restarted=False)


def test_a_task_that_has_left_the_group_begins_another_one(addresses):
    cluster = cluster_of(addresses, 1).without([Task("worker", 0), Task("worker", 3)])
    with group_of(cluster, before=77) as group:
        member = LocalLink(group, lambda link, message: None)
        terms = terms_of(cluster, Succession(77).added_to(OPTIONS))
        member.send({"type": "hello", "rank": 1, "task": "worker 2", "process": "another", "terms": terms})
        wait_until(lambda: group._life.running, 10, "the group")
        member.send({"type": "leave", "why": "", "epoch": group._life.epoch})
        wait_until(lambda: group._life.roster.entries[1].gone, 10, "the leave")
        assert not asking(addresses, 2).finds_group(restarted=False)


def test_newcomers_join_when_the_group_is_in_their_fit(addresses):
    with (
        concurrent.futures.ThreadPoolExecutor(2) as pool,
        group_of(survivor(addresses, 1), before=77) as group,
    ):
        joining = [pool.submit(asking(addresses, rank).join, 1) for rank in (0, 3)]
        assert not concurrent.futures.wait(joining, 1.0).done
        group.admissions.admit(1)
        assert not concurrent.futures.wait(joining, 0.5).done
        wait_until(lambda: group.step_ended() or group._life.failure is not None, 10, "the end of the group")
        found = [each.result(10) for each in joining]
        failure = group._life.failure
    assert failure.joins == ("worker 0", "worker 3")
    assert failure.lost == frozenset()
    joins = (Task("worker", 0), Task("worker", 3))
    expected = Admission(cluster_of(addresses, 0), group._life.epoch, (Task("worker", 1),), joins)
    assert found == [expected, expected._replace(cluster=cluster_of(addresses, 3))]


def test_nobody_joins_when_fit_is_ending(addresses):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with group_of(survivor(addresses, 1), before=77) as group:
            group.admissions.admit(1)
            group.admissions.admit(None)
            joining = pool.submit(asking(addresses, 2).join, 1)
            wait_until(lambda: group.admissions.has_waiting, 10, "the newcomer")
            time.sleep(0.6)
            group.step_ended()
            time.sleep(0.3)
            assert group._life.failure is None
        with pytest.raises(BootstrapError, match="the others have ended their training, or were lost"):
            joining.result(20)


def test_a_newcomer_of_an_earlier_fit_is_refused(addresses):
    with group_of(survivor(addresses, 1), before=77) as group:
        group.admissions.admit(2)
        with pytest.raises(
            BootstrapError, match=r"the others are in call number 2 of fit .* worker 2 is in number 1"
        ):
            asking(addresses, 2).join(1)
        assert group._life.failure is None


def test_a_newcomer_that_dies_while_it_waits_is_forgotten(addresses):
    with group_of(survivor(addresses, 1), before=77) as group:
        with asking(addresses, 2)._asking(Task("worker", 1), fit=1):
            wait_until(lambda: bool(group.admissions._waiting), 10, "the newcomer")
        wait_until(lambda: not group.admissions._waiting, 10, "its end")
        group.admissions.admit(1)
        group.step_ended()
        time.sleep(0.5)
        assert group._life.failure is None


def test_a_task_whose_cluster_is_not_elastic_joins_it_to_hear_so(addresses):
    coordinator = Coordinator(cluster_of(addresses, 0), {}, 60.0, lambda seconds: None)
    coordinator.start()
    server = ControlServer("worker 0", addresses[0], 4, SECRET, coordinator.post)
    try:
        assert not asking(addresses, 2).finds_group(restarted=False)
    finally:
        server.stop()
        coordinator.stop()


# ---- a group that grows


def growing(addresses: list[str], most: int | None = 3) -> contextlib.AbstractContextManager[Coordinator]:
    """Worker 1 trains alone, and knows workers 0 and 1."""
    return group_of(cluster_of(addresses[:2], 1).without([Task("worker", 0)]), before=77, most=most)


def test_a_group_takes_over_the_longer_list_and_gives_it_to_a_worker_with_the_shorter_one(addresses):
    with concurrent.futures.ThreadPoolExecutor(2) as pool, growing(addresses) as group:
        joining = [pool.submit(asking(addresses[:known], index).join, 1) for index, known in ((0, 2), (2, 3))]
        wait_until(lambda: len(group.admissions._waiting) == 2, 10, "both newcomers")
        group.admissions.admit(1)
        wait_until(lambda: group.step_ended() or group._life.failure is not None, 10, "the end of the group")
        found = [each.result(10) for each in joining]
    assert group._life.failure.joins == ("worker 0", "worker 2")
    assert group._life.failure.workers == tuple(addresses[:3])
    assert [each.cluster for each in found] == [cluster_of(addresses[:3], index) for index in (0, 2)]


def test_a_newcomer_learns_of_workers_that_have_joined_since(addresses):
    with group_of(survivor(addresses, 1), before=77, most=4):
        short = asking(addresses[:2], 0)
        assert short.finds_group(restarted=False)
        assert short._cluster == cluster_of(addresses, 0)


def test_a_group_that_does_not_grow_takes_no_new_worker(addresses):
    refused = pytest.raises(
        BootstrapError, match=r"knows 3 workers and the group 2, .* Elastic\(max_workers=\.\.\.\)"
    )
    with growing(addresses, most=None), refused:
        asking(addresses[:3], 2).finds_group(restarted=False)


@pytest.mark.parametrize(
    ("listed", "task", "reason"),
    [
        ((0, 1, 3), 2, 'worker 2 has the address "{3}" there, but "{2}" here'),  # which waits to join
        ((3, 1, 2), 2, 'worker 0 has the address "{3}" there, but "{0}" here'),
    ],
)
def test_a_newcomer_whose_list_contradicts_that_of_others_is_refused(addresses, listed, task, reason):
    with concurrent.futures.ThreadPoolExecutor(1) as pool, growing(addresses, most=4) as group:
        joining = pool.submit(asking(addresses[:3], 2).join, 1)
        wait_until(lambda: group.admissions.has_waiting, 10, "the first newcomer")
        with pytest.raises(BootstrapError) as raised:
            asking([addresses[each] for each in listed], task).join(1)
        assert f"takes no newcomer worker {task}: {reason.format(*addresses)}" in str(raised.value)
        group.admissions.admit(1)
        wait_until(lambda: group.step_ended() or group._life.failure is not None, 10, "the end of the group")
        assert joining.result(10).joins == (Task("worker", 2),)
    assert group._life.failure.workers == tuple(addresses[:3])


def test_a_group_that_is_full_takes_nobody(addresses, monkeypatch, caplog):
    monkeypatch.setattr(newcomer, "_FIRST_PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(newcomer, "_FULL_SECONDS", 0.6)
    full = pytest.raises(BootstrapError, match=r"has 2 workers already \(max_workers\)")
    with concurrent.futures.ThreadPoolExecutor(2) as pool, growing(addresses, most=2) as group:
        joining = pool.submit(asking(addresses[:3], 2).join, 1)
        wait_until(lambda: group.admissions.has_waiting, 10, "the first newcomer")
        with full:
            asking(addresses, 3).finds_group(restarted=False)
        late, tries = asking(addresses, 3), []
        monkeypatch.setattr(
            late, "_ask_all", lambda ask=late._ask_all: tries.append(time.monotonic()) or ask()
        )
        waiting = pool.submit(late.join, 1)
        wait_until(lambda: len(tries) > 1, 10, "the second try")
        assert tries[1] - tries[0] > 0.5
        assert re.search(r"worker 3 .* waits for room \(0 s\): .* has 2 workers already", caplog.text)
        group.admissions.admit(2)
        for each in (joining, waiting):
            with pytest.raises(BootstrapError, match="call number 2"):
                each.result(10)


def join_first(cluster: Cluster) -> ControlPlane:
    return ControlPlane.join(
        cluster,
        options=OPTIONS,
        timeout=10.0,
        secret=SECRET,
        on_abort=lambda code, message: None,
        describe=str,
        waiting=lambda: None,
        succession=Succession(),
        most=3,
    )


@pytest.mark.parametrize("late", [False, True])
def test_those_who_begin_while_a_group_trains_of_which_they_do_not_know_hear_of_it(
    addresses, late, monkeypatch
):
    monkeypatch.setattr(herald, "_EVERY_SECONDS", 0.1)
    cluster = cluster_of(addresses[:3], 2).without([Task("worker", 0), Task("worker", 1)])
    known = {"name": "worker 2", "workers": addresses[:3], "terms": newcomer_terms(cluster, OPTIONS)}
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        group_of(cluster_of(addresses[:2], 0), most=3) as group,
    ):
        joining = None if late else pool.submit(join_first, cluster_of(addresses[:2], 1))
        wait_until(lambda: late or group._life.running, 10, "the group")
        speaker = Herald(addresses[0], {"type": "elsewhere", **known}, SECRET, None)
        try:
            wait_until(lambda: group._life.failure is not None, 10, "the herald")
        finally:
            speaker.stop()
        assert group._life.failure.workers == tuple(addresses[:3])
        assert "worker 2 trains already" in group._life.failure.message
        if joining is None:
            with pytest.raises(OthersTrainError, match="worker 2 trains already") as raised:
                join_first(cluster_of(addresses[:2], 1))
            assert raised.value.workers == tuple(addresses[:3])
        else:
            plane = joining.result(10)
            wait_until(lambda: plane.failed() is not None, 10, "the failure")
            plane.close()


@pytest.mark.parametrize(
    ("most", "before", "change"),
    [(None, 0, {}), (3, 77, {}), (3, 0, {"terms": {}}), (3, 0, {"workers": ["a:1", "b:1"]})],
)
def test_a_group_that_is_not_the_first_one_or_of_another_job_does_not_end_for_that(
    addresses, most, before, change
):
    with group_of(cluster_of(addresses[:2], 0), before=before, most=most) as group:
        said: list[Message] = []
        link = LocalLink(group, lambda link, message: said.append(message))
        known = {
            "name": "worker 2",
            "workers": addresses[:3],
            "terms": newcomer_terms(cluster_of(addresses, 0), OPTIONS),
        }
        link.send({"type": "elsewhere", **known, **change})
        link.send({"type": "unknown"})
        wait_until(lambda: any(each["type"] == "refused" for each in said), 10, "the answer")
        assert group._life.failure is None


def test_a_new_worker_waits_until_the_first_group_has_formed(addresses):
    new = asking(addresses[:3], 2)
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        group_of(cluster_of(addresses[:2], 0), most=3) as group,
    ):
        with pytest.raises(BootstrapError, match=r"cannot join: the first group of worker 0 .* is forming"):
            new.finds_group(restarted=False, timeout=0.0)
        with pytest.raises(JoinsLaterError, match=r"worker 2 .* can join it when it trains"):
            join_first(cluster_of(addresses[:3], 2))
        waiting = pool.submit(new.finds_group, restarted=False, timeout=20.0)
        assert not concurrent.futures.wait([waiting], 1.2).done  # longer than for a group that forms again
        join_first(cluster_of(addresses[:2], 1)).close()
        assert group._life.running or group._life.failure is not None
        assert waiting.result(10)


def test_a_herald_ends_soon_and_spares_those_who_do_not_answer(monkeypatch):
    monkeypatch.setattr(herald, "_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(herald, "_TELL_SECONDS", 0.05)
    met: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    met.append(silent.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        speaker = Herald(f"127.0.0.1:{silent.getsockname()[1]}", {"type": "elsewhere"}, SECRET, None)
        wait_until(lambda: len(met) >= 2, 10, "the herald")
        time.sleep(0.8)
        assert len(met) <= 10
        monkeypatch.setattr(herald, "_TELL_SECONDS", 20.0)
        met.clear()
        wait_until(lambda: len(met) >= 2, 10, "the herald")
        speaker.stop()
        assert not speaker._thread.is_alive()


def test_a_list_that_no_cluster_can_have_is_refused(addresses):
    with growing(addresses, most=3) as group:
        for workers in (["a:1"] * 5000, ["x" * 300_000], ["nowhere"], [addresses[0], addresses[0]], [3]):
            said: list[Message] = []
            link = LocalLink(group, lambda link, message, said=said: said.append(message))
            link.send({"type": "newcomer", "task": "worker 2", "workers": workers, "terms": {}, "fit": 1})
            wait_until(lambda said=said: bool(said), 10, "the refusal")
            assert said[0]["type"] == "refused"
        assert group._life.failure is None
