"""Checks numbers that are arguments of optimizers and schedules. Imports no TensorFlow."""

from __future__ import annotations

import math

from tf_strategies.errors import OptionsError
from tf_strategies.options import whole_number
from tf_strategies.types import Unchecked

__all__ = ["count", "not_negative", "positive", "share"]


def not_negative(name: str, value: Unchecked) -> float:
    """Returns the argument as a float, which must be finite and at least 0."""
    return _checked(name, value, _number(value) >= 0, "a finite number of at least 0")


def positive(name: str, value: Unchecked) -> float:
    """Returns the argument as a float, which must be finite and above 0."""
    return _checked(name, value, _number(value) > 0, "a finite number above 0")


def count(name: str, value: Unchecked, least: int = 1) -> int:
    """Returns the argument as an int, which must be at least `least`."""
    number = whole_number(value)
    if number is None or number < least:
        raise OptionsError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return number


def share(name: str, value: Unchecked) -> float:
    """Returns the argument as a float, which must be at least 0 and below 1."""
    return _checked(name, value, 0 <= _number(value) < 1, "a number of at least 0 and below 1")


def _checked(name: str, value: Unchecked, allowed: bool, expected: str) -> float:
    if not allowed:
        raise OptionsError(f"{name} must be {expected}; got {value!r}")
    return float(value)


def _number(value: Unchecked) -> float:
    """Returns the value if it is a finite number, otherwise NaN, which is not allowed anywhere."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except (TypeError, ValueError):
        return math.nan
