"""The errors this package raises, and the core's codes. Imports no TensorFlow."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """Equal to `Code` of ops/base/status.h."""

    OK = 0
    INVALID_ARGUMENT = 1
    MISMATCH = 2
    DEADLINE_EXCEEDED = 3
    UNAVAILABLE = 4
    CANCELLED = 5
    INTERNAL = 6
    RESOURCE_EXHAUSTED = 7
    FAILED_PRECONDITION = 8
    ABORTED = 9


class TfStrategiesError(Exception):
    """Whatever this package raises of its own."""


class ClusterConfigError(TfStrategiesError, ValueError):
    """TF_CONFIG is wrong: one line saying what was found and how to mend it."""


class OptionsError(TfStrategiesError, ValueError):
    """An option has a value it cannot have."""


class BootstrapError(TfStrategiesError, RuntimeError):
    """The group could not form, or broke before it was used: names the task, its address and the remedy."""


class DriftError(TfStrategiesError, ValueError):
    """Workers or replicas hold different values of what must be equal: names it, both sides and the remedy."""


class BuildMismatchError(TfStrategiesError, ImportError):
    """The compiled ops do not fit the TensorFlow that is installed."""
