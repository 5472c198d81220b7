"""Objects that workers send one another: round trips, refusals, and bytes that nobody has encoded."""

from __future__ import annotations

import collections
import contextlib
import enum
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tf_strategies.objects import decode, encode

pytestmark = pytest.mark.any_line

NUMBERS = st.sampled_from(
    ["bool", "int8", "uint64", "int32", "<f4", ">f4", "float16", "float64", "complex64", ">i2"]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | NUMBERS.flatmap(
        lambda name: arrays.arrays(np.dtype(name), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0))
    )
)
KEYS = st.text() | st.integers() | st.none() | st.tuples(st.integers(), st.binary())
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, np.ndarray):
        return (
            one.dtype.newbyteorder("=") == other.dtype
            and one.shape == other.shape
            and other.flags.writeable
            and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
        )
    return bool(one == other)


@given(OBJECTS)
def test_objects_arrive_as_they_were(value: Any) -> None:
    assert same(value, decode(encode(value)))


def test_special_numbers_arrive_as_they_were() -> None:
    assert math.isnan(decode(encode(math.nan)))
    assert math.copysign(1, decode(encode(-0.0))) == -1
    for value in (-1, 127, 128, -128, -129, 1 << 200, -(1 << 200)):
        assert decode(encode(value)) == value
    scalar = decode(encode(np.float32(0.1)))
    assert type(scalar) is np.float32 and scalar == np.float32(0.1)
    assert decode(encode("\ud800")) == "\ud800"
    assert decode(encode(np.zeros([2, 4])[:, ::2])).shape == (2, 2)


class Color(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "cannot send a object; convert"),
        ({"model": [1, {2}]}, r"cannot send a set at object\['model'\]\[1\]"),
        (Color.RED, "Color"),
        (Point(1, 2), "Point"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (len, "builtin_function_or_method"),
        (np.array(["a"]), "numpy.ndarray of dtype <U1"),
        (np.array([None]), "of dtype object"),
        (np.zeros(2, "M8[s]"), "of dtype datetime64"),
        (np.zeros(2, [("a", "i4")]), "of dtype"),
        (np.ma.zeros(2), "MaskedArray"),
        ({frozenset(): 1}, r"frozenset at object.keys\(\)"),
    ],
    ids=repr,
)
def test_other_types_are_refused_by_name(value: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        encode(value)


def test_an_object_in_itself_is_refused() -> None:
    value: list = []
    value.append(value)
    with pytest.raises(ValueError, match="nested deeper than 100"):
        encode(value)


def length(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"NN",
        b"f1234567",
        b"i" + length(1 << 62),
        b"b" + length(-1),
        b"l" + length(1 << 40) + b"N" * 40,
        b"d" + length(2) + b"NNNN",
        b"d" + length(1) + b"l" + length(0) + b"N",
        b"d" + length(1) + b"a\0\0\1" + b"N",
        b"s" + length(1) + b"\xff",
        b"a\x63\0",
        b"a\4\2" + length(1 << 40) + length(1 << 40),
        b"a\4\2" + length(-1) + length(-1) + bytes(8),
        b"a\4\2" + length(0) + length(1 << 62),
        b"a\4\xff" + length(1) * 255 + bytes(8),
        b"n\4" + bytes(7),
        (b"l" + length(1)) * 101 + b"N",
        b"\x80\x04N.",  # a pickle
    ],
    ids=repr,
)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(data)


@given(OBJECTS, st.data())
def test_damaged_objects_are_objects_or_refused(value: Any, data: st.DataObject) -> None:
    damaged = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with contextlib.suppress(ValueError):
        decode(bytes(damaged))
