"""Tests that any bytes are a message or a ValueError, and that lengths are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_strategies.control_plane import messages


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_a_message_or_a_value_error(data):
    try:
        message = messages.decode(data)
    except ValueError:
        return
    assert isinstance(message["type"], str)


def test_deep_nesting_is_a_value_error():
    with pytest.raises(ValueError, match="nested too deep"):
        messages.decode(b"[" * 500_000)


def test_a_message_is_read_back():
    message = {"type": "exchange", "payload": {"ü": [1, 2.5, None]}}
    assert messages.decode(messages.encode(message)) == message


def test_a_message_beyond_the_limit_is_not_sent():
    with pytest.raises(ValueError, match="at most 1048576"):
        messages.encode({"type": "x", "data": "a" * (1 << 20)})


@pytest.mark.parametrize("value", [True, "1", 1.0, None])
def test_a_field_of_the_wrong_type_is_a_value_error(value):
    with pytest.raises(ValueError, match="'rank' of a hello"):
        messages.integer({"type": "hello", "rank": value}, "rank")


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 1 << 64, 10**400])
def test_a_number_that_is_none_or_too_large_is_a_value_error(value):
    with pytest.raises(ValueError, match="'seconds' of a waiting"):
        messages.number({"type": "waiting", "seconds": value}, "seconds")


@pytest.mark.parametrize("value", [1 << 63, -(1 << 64), 10**400])
def test_an_integer_that_is_too_large_is_a_value_error(value):
    with pytest.raises(ValueError, match="integer of 64 bits"):
        messages.integer({"type": "hello", "rank": value}, "rank")


def test_wires_are_read_back():
    wire = [2, 0, 3, 4096, 0.5]
    assert messages.wires({"type": "pace", "wires": [wire]}, 2, 3) == [tuple(wire)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1],
        [[2, 0, 3, 4096]],
        [[2, 0, 3, 4096, float("nan")]],
        [[2, 0, 3, -1, 0.5]],
        [[2, 0, 3, True, 0.5]],
        [[2, 0, 3, 1 << 63, 0.5]],
        [[1, 0, 3, 4096, 0.5]],
        [[2, 3, 3, 4096, 0.5]],
        [[2, 0, 3, 4096, 0.5]] * 65,
    ],
)
def test_wires_of_another_form_are_a_value_error(value):
    with pytest.raises(ValueError, match="the 'wires' of a pace message must be"):
        messages.wires({"type": "pace", "wires": value}, 2, 3)


def test_lists_of_ranks_are_read_back():
    message = messages.decode(messages.encode({"type": "present", "perhaps": [[0, 3], [2, 1, 0]]}))
    assert messages.lists_of_ranks(message, "perhaps") == [(0, 3), (2, 1, 0)]


@pytest.mark.parametrize(
    "value", [None, {}, [0], [[0], 1], [[0, -1]], [[True]], [[0.0]], [["0"]], [[1, 1]], [[]]]
)
def test_lists_of_something_else_are_a_value_error(value):
    with pytest.raises(
        ValueError, match="the 'perhaps' of a present message must be a list of lists of ranks"
    ):
        messages.lists_of_ranks({"type": "present", "perhaps": value}, "perhaps")
