"""A group is complete for all members, or they know that they cannot know: members in one process, over real connections."""

from __future__ import annotations

import concurrent.futures
from typing import Iterator

import pytest

from tests.support.processes import ReservedPorts, wait_until
from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane import ControlPlane
from tf_strategies.errors import BootstrapError, Code, PerhapsFormedError

pytestmark = pytest.mark.any_line

SECRET = b"a secret of this test's cluster"


@pytest.fixture
def planes() -> Iterator[list[ControlPlane]]:
    with ReservedPorts(2) as ports, concurrent.futures.ThreadPoolExecutor(2) as pool:
        addresses = {"worker": tuple(ports.addresses)}

        def join(rank: int) -> ControlPlane:
            return ControlPlane.join(
                Cluster(addresses, Task("worker", rank)),
                options={},
                timeout=20.0,
                secret=SECRET,
                on_abort=lambda code, message: None,
                describe=lambda instance: "nothing",
                waiting=lambda: None,
            )

        found = list(pool.map(join, range(2)))
        yield found
        for plane in reversed(found):
            plane.close()


@pytest.fixture
def voting(planes) -> Iterator[concurrent.futures.Future]:
    """Lets rank 1 vote, while rank 0 has not voted. Yields the result to come."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(planes[1].complete)


def open_votes(first: ControlPlane) -> int:
    return len(first._coordinator._exchanges._open)


def test_all_members_know_that_the_group_is_complete(planes, voting):
    planes[0].complete()
    assert voting.result(20) is None


def test_a_group_that_rank_0_has_ended_before_is_complete_for_nobody(planes, voting):
    wait_until(lambda: open_votes(planes[0]) == 1, 10, "the vote of rank 1")
    planes[0].report_failure(int(Code.INTERNAL), "a failure of this test")
    with pytest.raises(BootstrapError, match="a failure of this test") as error:
        voting.result(20)
    assert not isinstance(error.value, PerhapsFormedError)


def test_who_loses_rank_0_after_its_vote_cannot_know(planes, voting):
    wait_until(lambda: open_votes(planes[0]) == 1, 10, "the vote of rank 1")
    planes[0]._server.stop()
    with pytest.raises(PerhapsFormedError, match=r"worker 0 .* is lost"):
        voting.result(20)
