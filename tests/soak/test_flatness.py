"""The judgement of the soak: a leak is seen through noise, a late allocation is not taken for one."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tests.soak import flatness
from tests.soak.resources import Sample, measure

pytestmark = pytest.mark.any_line

NOISE = 40_000


def samples(grow) -> list:
    generator = random.Random(1)
    flat = Sample(0, 300_000_000, 150_000_000, 1_000_000, 25, 30, 6, 1500, 17_000_000)
    return [
        dataclasses.replace(flat, step=step, heap=flat.heap + grow(step) + generator.randrange(NOISE))
        for step in range(500, 1500, 25)
    ]


def test_a_kilobyte_a_step_is_seen_through_noise() -> None:
    found = flatness.too_much(samples(lambda step: 1024 * step), {"heap": 600 * 975, "descriptors": 0})
    assert len(found) == 1
    assert found[0].startswith("heap grew by ")


@pytest.mark.parametrize(
    "grow", [lambda step: 0, lambda step: 2_000_000 * (step > 1300), lambda step: 900_000 * (step == 700)]
)
def test_noise_a_late_allocation_and_an_outlier_are_no_leak(grow) -> None:
    assert flatness.too_much(samples(grow), {"heap": 600 * 975}) == []


def test_a_descriptor_that_each_hundred_steps_leave_is_seen() -> None:
    leaking = [
        dataclasses.replace(each, descriptors=25 + each.step // 100) for each in samples(lambda step: 0)
    ]
    assert flatness.too_much(leaking, {"descriptors": 0})


def test_what_is_measured_moves_with_what_is_held() -> None:
    before = measure(0)
    kept = [bytearray(100_000) for _ in range(50)]
    opened = [open(__file__) for _ in range(3)]  # noqa: SIM115, PTH123
    after = measure(1)
    assert after.heap - before.heap >= sum(map(len, kept))
    assert after.descriptors - before.descriptors == len(opened)
    for each in opened:
        each.close()
    assert measure(2).descriptors == before.descriptors
