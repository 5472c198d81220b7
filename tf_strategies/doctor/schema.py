"""Turns JSON into the classes of `records`, and refuses what does not fit them."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from typing import Any, Dict, Type, TypeVar

__all__ = ["from_json", "to_json"]

_MOST_ENTRIES = 4096
_MOST_CHARACTERS = 4096
_Record = TypeVar("_Record")


def to_json(record: Any) -> Dict[str, Any]:
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
def _fields(kind: Any) -> Dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, value: object, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        found, fields = _object(value, where), _fields(typing.cast(Any, kind))
        if set(found) != set(fields):
            raise ValueError(f"{where} has other fields than expected")
        read = {name: _read(each, found[name], f"{where}.{name}") for name, each in fields.items()}
        return typing.cast(Any, kind)(**read)
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


def _object(value: object, where: str) -> Dict[Any, Any]:
    if not isinstance(value, dict) or len(value) > _MOST_ENTRIES:
        raise ValueError(f"{where} is no object, or too large")
    return value


def _simple(kind: Any, value: object, where: str) -> Any:
    if kind is float and type(value) in (int, float) and math.isfinite(typing.cast(float, value)):
        return float(typing.cast(float, value))
    if kind is str and isinstance(value, str) and len(value) <= _MOST_CHARACTERS:
        return value
    if kind in (int, bool) and type(value) is kind and abs(value) < 1 << 63:  # type: ignore[arg-type]
        return value
    raise ValueError(f"{where} is no {kind.__name__}, or too large")
