"""Seconds that a test spends on what its whole session needs. tests/support/budgets.py does not count them."""

from __future__ import annotations

__all__ = ["set_aside", "take_aside"]

_seconds: list[float] = []


def set_aside(seconds: float) -> None:
    """Leaves so many seconds out of the current test."""
    _seconds.append(seconds)


def take_aside() -> float:
    """Returns what was set aside since the last call."""
    total = sum(_seconds)
    _seconds.clear()
    return total
