"""Turns JSON into the classes of `records`, and refuses what does not fit them."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from typing import TYPE_CHECKING, Callable, Dict, Hashable, Type, TypeVar

from tf_strategies.types import JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["from_json", "to_json"]

_MOST_ENTRIES = 4096
_MOST_CHARACTERS = 4096
_Record = TypeVar("_Record")


def to_json(record: DataclassInstance) -> JsonObject:
    """Returns the fields of a record as JSON can hold them."""
    return dataclasses.asdict(record)


def from_json(kind: Type[_Record], value: object) -> _Record:
    """Returns the record of what `to_json` returned.

    Args:
        kind: a class of `records`.
        value: what came from another process.

    Raises:
        ValueError: it lacks a field, has an unknown one, or one of another type or without bounds.
    """
    return typing.cast(_Record, _read(kind, value, kind.__name__))


@functools.cache
def _fields(kind: Hashable) -> Dict[str, object]:
    return typing.get_type_hints(kind)


def _read(kind: object, value: object, where: str) -> object:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        found, fields = _object(value, where), _fields(kind)
        if set(found) != set(fields):
            raise ValueError(f"{where} has other fields than expected")
        read = {name: _read(each, found[name], f"{where}.{name}") for name, each in fields.items()}
        return typing.cast(Callable[..., object], kind)(**read)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict:
        pairs = _object(value, where).items()
        return {
            _read(str, name, where): _read(inner[1], each, f"{where}.{name}"[:200]) for name, each in pairs
        }
    if origin is list:
        if not isinstance(value, list) or len(value) > _MOST_ENTRIES:
            raise ValueError(f"{where} is no list, or too long")
        return [_read(inner[0], each, where) for each in value]
    return _simple(kind, value, where)


def _object(value: object, where: str) -> Dict[object, object]:
    if not isinstance(value, dict) or len(value) > _MOST_ENTRIES:
        raise ValueError(f"{where} is no object, or too large")
    return value


def _simple(kind: object, value: object, where: str) -> object:
    if kind is float and type(value) is float and math.isfinite(value):
        return value
    if kind is float and type(value) is int and abs(value) < 1 << 63:
        return float(value)
    if kind is str and isinstance(value, str) and len(value) <= _MOST_CHARACTERS:
        return value
    if kind in (int, bool) and type(value) is kind and abs(value) < 1 << 63:
        return value
    raise ValueError(f"{where} is no {getattr(kind, '__name__', kind)}, or too large")
