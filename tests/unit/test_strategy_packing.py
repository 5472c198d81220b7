"""Packs hold every tensor once, in the order of backprop, within the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tf_strategies.collective.packing import plan_packs

_TENSORS = st.lists(
    st.tuples(st.sampled_from(["float32", "float16", "int32"]), st.none() | st.integers(0, 200))
)


def test_one_pack_holds_all_when_they_fit_last_variable_first() -> None:
    assert plan_packs([("f", 10), ("f", 20), ("f", 30)], bytes_per_pack=60) == [[2, 1, 0]]


def test_a_tensor_as_large_as_a_pack_takes_the_small_ones_before_it_along_and_closes_their_pack() -> None:
    assert plan_packs([("f", 1), ("f", 64), ("f", 2), ("f", 3)], bytes_per_pack=64) == [[3, 2, 1], [0]]


def test_a_pack_is_not_held_open_while_others_pass() -> None:
    """The gradient of the first layer comes last: what comes first must not wait for it."""
    assert plan_packs([("a", 1), ("b", 64), ("a", 1)], bytes_per_pack=64) == [[2], [1], [0]]


def test_a_full_pack_is_closed_before_it_exceeds_the_limit() -> None:
    assert plan_packs([("f", 3), ("f", 3), ("f", 3)], bytes_per_pack=8) == [[2, 1], [0]]


def test_dtypes_do_not_mix() -> None:
    assert plan_packs([("a", 4), ("b", 4), ("a", 4)], bytes_per_pack=100) == [[2, 0], [1]]


def test_a_tensor_of_unknown_size_goes_alone() -> None:
    assert plan_packs([("f", 1), ("f", None), ("f", 1)], bytes_per_pack=100) == [[2, 0], [1]]


def test_nothing_to_pack_is_no_pack() -> None:
    assert plan_packs([], bytes_per_pack=8) == []


@given(_TENSORS, st.integers(1, 300))
def test_each_tensor_is_in_one_pack_of_its_dtype_within_the_limit(tensors: list, limit: int) -> None:
    packs = plan_packs(tensors, limit)
    assert sorted(position for pack in packs for position in pack) == list(range(len(tensors)))
    for pack in packs:
        assert pack == sorted(pack, reverse=True)
        assert len({tensors[position][0] for position in pack}) == 1
        if len(pack) > 1:
            assert sum(tensors[position][1] for position in pack[:-1]) <= limit
            if tensors[pack[-1]][1] < limit:
                assert sum(tensors[position][1] for position in pack) <= limit
        passed = [size or 0 for _, size in tensors[pack[-1] + 1 : pack[0] + 1]]
        assert len(pack) == 1 or sum(passed) < limit
    assert [pack[0] for pack in packs] == sorted((pack[0] for pack in packs), reverse=True)
