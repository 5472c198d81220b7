"""Tests which refused connections are logged, and that strangers cannot make the log or the memory grow."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from typing import List

import pytest

from tf_strategies.refusal_counts import RefusalCounts

pytestmark = pytest.mark.any_line
_POWERS = [1 << exponent for exponent in range(11)]


def test_a_reason_that_always_comes_between_the_powers_of_two_of_all_is_logged() -> None:
    refused = RefusalCounts()
    logged = []
    for number in range(1, 65):
        reason = "often" if number & (number - 1) == 0 else "between"
        logged.append((reason, refused.count(reason, "10.0.0.2")))
    assert [number for reason, number in logged if reason == "often" and number] == [1, 2, 4]
    assert [number for reason, number in logged if reason == "between" and number] == [1, 2, 4, 8, 16, 32]


def test_each_host_is_logged_once_though_the_reason_is_frequent() -> None:
    refused = RefusalCounts()
    for _ in range(100):
        refused.count("no secret", "10.0.0.2")
    assert [refused.count("no secret", host) for host in ("10.0.0.3", "10.0.0.4", "10.0.0.3")] == [
        101,
        102,
        0,
    ]


def test_a_stranger_with_many_hosts_does_not_fill_the_log_and_hides_no_other_reason() -> None:
    refused = RefusalCounts()
    numbers = [refused.count("silent", f"host {index}") for index in range(1024)]
    assert [number for number in numbers if number] == [*range(1, 17), 32, 64, 128, 256, 512, 1024]
    assert refused.count("no secret", "10.0.0.2") == 1


def test_reasons_beyond_a_number_are_counted_as_one() -> None:
    refused = RefusalCounts()
    numbers = [refused.count(f"reason {index}", "a host") for index in range(32 + 1024)]
    assert numbers[:32] == [1] * 32
    assert [number for number in numbers[32:] if number] == _POWERS
    assert refused.count("reason 0", "a host") == 2


def test_memory_does_not_grow_with_refusals() -> None:
    refused = RefusalCounts()

    def refuse(first: int) -> None:
        for index in range(first, first + 2000):
            refused.count(f"reason {index}", f"host {index}")
            refused.count("reason 0", f"host {index}")

    refuse(0)
    tracemalloc.start()
    try:
        refuse(2000)
        assert tracemalloc.get_traced_memory()[0] < 4096
    finally:
        tracemalloc.stop()


def test_refusals_of_many_threads_are_all_counted() -> None:
    refused = RefusalCounts()
    logged: List[int] = []

    def refuse() -> None:
        logged.extend(filter(None, (refused.count("no secret", "a host") for _ in range(256))))

    threads = [threading.Thread(target=refuse) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(logged) == _POWERS
