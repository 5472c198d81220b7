"""A wire is slow compared with the others, if it carries enough to be compared."""

from __future__ import annotations

import pytest

from tf_strategies.slow_wire import Sent, find_slow_wire, sent_over

NAMES = ["worker 0 (a:1)", "worker 1 (b:1)", "worker 2 (c:1)", "worker 3 (d:1)"]
FAST, SLOW = 100e6, 40e6
pytestmark = pytest.mark.any_line


def sent(sender: int, receiver: int, rate: float = FAST, seconds: float = 1.0, message: float = 1e6) -> Sent:
    return Sent(sender, receiver, int(rate * seconds / message), int(rate * seconds), seconds)


def all_wires(*slow: tuple[int, int]) -> list[Sent]:
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1)]
    return [sent(*pair, SLOW if pair in slow else FAST) for pair in pairs]


@pytest.mark.parametrize(
    ("slow", "subject", "text"),
    [
        (
            [(3, 1), (3, 2)],
            (3,),
            "network of worker 3 (d:1) is slow: it sends 40 MB/s, and the other connections have 100",
        ),
        ([(1, 3), (2, 3)], (3,), "network of worker 3 (d:1) is slow: it receives 40 MB/s"),
        ([(1, 3), (3, 1), (2, 3)], (3,), "network of worker 3 (d:1) is slow: it sends and receives 40 MB/s"),
        ([(2, 0)], (2, 0), "network from worker 2 (c:1) to worker 0 (a:1) is slow: 40 MB/s, and the other"),
        ([(1, 3), (3, 1)], (1, 3), "network from worker 1 (b:1) to worker 3 (d:1) is slow: 40 MB/s"),
    ],
)
def test_a_worker_or_a_pair_is_named(
    slow: list[tuple[int, int]], subject: tuple[int, ...], text: str
) -> None:
    found = find_slow_wire(all_wires(*slow))
    assert found is not None
    assert {each[:2] for each in found.wires} == set(slow)
    assert found.subject == subject
    assert text in found.describe(NAMES)


@pytest.mark.parametrize(
    "wires",
    [
        [],
        all_wires(),
        [sent(0, 1, SLOW)],
        [sent(0, 1), sent(1, 0, 0.7 * FAST)],
        [sent(0, 1), sent(1, 0, SLOW, message=1e4)],
        [sent(0, 1), sent(1, 0, SLOW, seconds=0.05)],
        [sent(0, 1), sent(1, 0, 5e5)],
        [Sent(0, 1, 0, 0, 0.0), Sent(1, 0, 0, 0, 0.0)],
    ],
)
def test_little_data_short_messages_and_small_differences_say_nothing(wires: list[Sent]) -> None:
    assert find_slow_wire(wires) is None


@pytest.mark.parametrize("small", [1, 2])
def test_wires_that_share_a_network_card_are_not_slow(small: int) -> None:
    """Binary blocks of 4 + 1 or 4 + 2 workers: one of the small block sends to several of the large one at once."""
    block = [sent(rank, rank ^ distance) for rank in range(4) for distance in (1, 2)]
    ratio = 4 // small
    between = [(4 + other // ratio, other) for other in range(4)]
    shared = [sent(*pair, FAST / ratio, seconds=ratio) for a, b in between for pair in ((a, b), (b, a))]
    assert find_slow_wire(block + shared) is None


def test_a_slow_worker_of_a_ring_of_five_is_named() -> None:
    ring = [sent(rank, (rank + 1) % 5, SLOW if rank == 2 else FAST) for rank in range(5)]
    found = find_slow_wire(ring)
    assert found is not None and found.subject == (2, 3)


def test_unused_connections_are_left_out() -> None:
    used = {"peer": 2, "messages": 3, "bytes": 4096, "seconds": 0.5}
    assert sent_over([{**used, "peer": 1, "messages": 0}, used], 0) == [Sent(0, 2, 3, 4096, 0.5)]


def test_a_window_is_a_difference() -> None:
    later = Sent(0, 1, 5, 900, 2.0)
    assert later.since(Sent(0, 1, 2, 300, 0.5)) == Sent(0, 1, 3, 600, 1.5)
    assert later.since(None) == later
