"""How much communication hides behind computation: benchmarks.spans, against points of time that are counted one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.spans import Span, Step, common, length, union

pytestmark = pytest.mark.any_line

times = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    max_size=8,
)


def points(spans) -> set:
    """The unit intervals that spans with whole ends cover, by their begin."""
    return {point for begin, end in spans for point in range(begin, end)}


@given(times)
def test_a_union_covers_the_same_and_nothing_twice(spans):
    merged = union(spans)
    assert points(merged) == points(spans)
    assert length(merged) == len(points(spans))
    assert all(one[1] < other[0] for one, other in zip(merged, merged[1:]))


@given(times, times)
def test_what_is_common_is_in_both(one, other):
    shared = common(union(one), union(other))
    assert points(shared) == points(one) & points(other)
    assert length(shared) == len(points(one) & points(other))


def test_a_step_by_hand():
    step = Step(
        [
            Span("forward", "f", 0.0, 2.0),
            Span("backprop", "b2", 2.0, 4.0),
            Span("backprop", "b1", 4.0, 6.0),
            Span("collective", "pack 0", 5.0, 9.0),
            Span("collective", "pack 1", 8.0, 11.0),
            Span("update", "u", 9.0, 10.0),
        ]
    )
    # In flight from 5 to 11; backprop runs until 6, the update from 9 to 10.
    assert step.row() == pytest.approx(
        {
            "step_ms": 11_000,
            "communication_ms": 6_000,
            "hidden_ms": 2_000,
            "hidden_share": 2 / 6,
            "hidden_by_backprop_share": 1 / 6,
            "first_before_end_of_backprop_ms": 1_000,
        }
    )


def test_a_step_needs_backprop_and_a_collective():
    with pytest.raises(ValueError, match=r"got only \['backprop'\]"):
        Step([Span("backprop", "b", 0.0, 1.0)])
