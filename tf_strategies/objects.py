"""Encodes simple Python objects as bytes. Imports no TensorFlow, and executes nothing that it decodes.

An encoded object is a tag of one byte and a body. Lengths and counts are 8 bytes, little-endian.

    N T F            None, True, False
    i LENGTH BYTES   int, two's complement, little-endian
    f 8 BYTES        float
    s LENGTH BYTES   str in UTF-8
    b LENGTH BYTES   bytes
    l COUNT OBJECTS  list
    t COUNT OBJECTS  tuple
    d COUNT PAIRS    dict, each pair a key and a value
    a DTYPE DIMENSIONS SIZES BYTES   NumPy array: the number of its dtype in `_DTYPES` and of its dimensions, one byte each
    n DTYPE BYTES                    NumPy scalar
"""

from __future__ import annotations

import math
import struct
from typing import Any, Callable

import numpy as np

from tf_strategies.types import Sendable

__all__ = ["decode", "encode"]

_DEEPEST = 100
_MOST_DIMENSIONS = 32
# The position is part of the encoding.
_DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
_ALLOWED = "None, bool, int, float, str, bytes, list, tuple, dict, and NumPy arrays and scalars of numbers"


def encode(value: Sendable) -> bytes:
    """Returns an object as bytes.

    Args:
        value: None, a bool, int, float, str or bytes, a NumPy array or scalar of numbers, or a list, tuple or dict of these.
            An object of a subclass of these types is refused, because it would arrive as another type.

    Raises:
        TypeError: the object, or an object in it, has another type. The message names the type and the place.
        ValueError: the object is nested too deep, as one that contains itself.

    Example:
        >>> decode(encode({"epoch": 3, "scores": (0.5, None)}))
        {'epoch': 3, 'scores': (0.5, None)}
    """
    parts: list[bytes] = []
    _write(value, parts, "", 0)
    return b"".join(parts)


def decode(data: bytes) -> Sendable:
    """Returns the object that `encode` has made these bytes of.

    Raises:
        ValueError: no object is encoded like this.
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.position != len(data):
        raise ValueError(f"{len(data) - reader.position} bytes follow the object")
    return value


def _write(value: Sendable, parts: list[bytes], where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"the object is nested deeper than {_DEEPEST} levels, at {where[:60]}...")
    kind = type(value)
    if kind in _CONSTANTS:
        parts.append(_CONSTANTS[kind](value))
    elif kind is list or kind is tuple:
        parts.append((b"l" if kind is list else b"t") + _number(len(value)))
        for index, each in enumerate(value):
            _write(each, parts, f"{where}[{index}]", depth + 1)
    elif kind is dict:
        parts.append(b"d" + _number(len(value)))
        for key, each in value.items():
            _write(key, parts, f"{where}.keys()", depth + 1)
            _write(each, parts, f"{where}[{key!r}]", depth + 1)
    elif kind is np.ndarray and _plain(value.dtype) in _DTYPES and value.ndim <= _MOST_DIMENSIONS:
        dtype = _plain(value.dtype)
        parts.append(b"a" + bytes([_DTYPES.index(dtype), value.ndim]) + b"".join(map(_number, value.shape)))
        parts.append(np.ascontiguousarray(value, dtype).tobytes())
    elif isinstance(value, np.generic) and value.dtype in _DTYPES:
        parts.append(b"n" + bytes([_DTYPES.index(value.dtype)]) + value.tobytes())
    else:
        raise TypeError(_refusal(value, where))


def _refusal(value: object, where: str) -> str:
    kind = type(value)
    named = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    dtype = f" of dtype {value.dtype}" if isinstance(value, (np.ndarray, np.generic)) else ""
    place = f" at object{where[:80]}" if where else ""
    return f"cannot send a {named}{dtype}{place}; convert it to one of {_ALLOWED}"


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    plain: np.dtype[Any] = dtype.newbyteorder("=")
    return plain


def _number(value: int) -> bytes:
    return struct.pack("<q", value)


def _counted(tag: bytes, body: bytes) -> bytes:
    return tag + _number(len(body)) + body


def _int(value: int) -> bytes:
    return _counted(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


_CONSTANTS: dict[type, Callable[[Sendable], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: _int,
    float: lambda value: b"f" + struct.pack("<d", value),
    str: lambda value: _counted(b"s", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: _counted(b"b", value),
}


class _Reader:
    """Reads objects from bytes, and believes no length that the bytes do not have."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def value(self, depth: int) -> Sendable:
        if depth > _DEEPEST:
            raise ValueError(f"the object is nested deeper than {_DEEPEST} levels")
        tag = self._bytes(1)
        if tag in (b"N", b"T", b"F"):
            return {b"N": None, b"T": True, b"F": False}[tag]
        if tag == b"i":
            return int.from_bytes(self._bytes(self._count(1)), "little", signed=True)
        if tag == b"f":
            return struct.unpack("<d", self._bytes(8))[0]
        if tag == b"s":
            return self._bytes(self._count(1)).decode("utf-8", "surrogatepass")
        if tag == b"b":
            return self._bytes(self._count(1))
        if tag == b"l":
            return [self.value(depth + 1) for _ in range(self._count(1))]
        if tag == b"t":
            return tuple(self.value(depth + 1) for _ in range(self._count(1)))
        if tag == b"d":
            return self._dict(depth)
        if tag == b"a":
            return self._array()
        if tag == b"n":
            dtype = self._dtype()
            return np.frombuffer(self._bytes(dtype.itemsize), dtype)[0]
        raise ValueError(f"there is no object with the tag {tag!r}")

    def _dict(self, depth: int) -> dict[Sendable, Sendable]:
        count = self._count(2)
        result: dict[Sendable, Sendable] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            try:
                result[key] = self.value(depth + 1)
            except TypeError:
                raise ValueError(f"a {type(key).__name__} is the key of a dict") from None
        if len(result) != count:
            raise ValueError("a dict has one key twice")
        return result

    def _array(self) -> np.ndarray[Any, Any]:
        dtype = self._dtype()
        dimensions = self._bytes(1)[0]
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"an array has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}q", self._bytes(8 * dimensions))
        if any(size < 0 for size in shape):
            raise ValueError(f"an array has the shape {shape}")
        data = self._bytes(math.prod(shape) * dtype.itemsize)
        try:
            array: np.ndarray[Any, Any] = np.frombuffer(data, dtype).reshape(shape).copy()
        except ValueError:
            raise ValueError(f"an array has the shape {shape}") from None
        return array

    def _dtype(self) -> np.dtype[Any]:
        number = self._bytes(1)[0]
        if number >= len(_DTYPES):
            raise ValueError(f"there is no dtype {number}")
        return _DTYPES[number]

    def _count(self, least_bytes: int) -> int:
        """Reads a number of things that take at least so many bytes each."""
        (count,) = struct.unpack("<q", self._bytes(8))
        if not 0 <= count * least_bytes <= len(self._data) - self.position:
            raise ValueError(f"a length is {count}, but {len(self._data) - self.position} bytes follow")
        return int(count)

    def _bytes(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise ValueError(f"{count} bytes are missing at {self.position}")
        read = self._data[self.position : end]
        self.position = end
        return read
