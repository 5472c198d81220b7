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
    """Is the base of all errors of this package."""


# By this AutoGraph knows that it can raise the same class again, with the lines of the user's function in the message.
TfStrategiesError.__init__ = Exception.__init__  # type: ignore[method-assign]


class ClusterConfigError(TfStrategiesError, ValueError):
    """Says that TF_CONFIG is wrong, what was found in it, and how to correct it."""


class OptionsError(TfStrategiesError, ValueError):
    """Says that an option has a value that is not allowed."""


class BootstrapError(TfStrategiesError, RuntimeError):
    """Says that the group could not form, or failed before its first use. Names the task, its address and the remedy."""


class DriftError(TfStrategiesError, ValueError):
    """Says that workers or replicas hold different values of what must be equal. Names it, both sides and the remedy."""


class BuildMismatchError(TfStrategiesError, ImportError):
    """Says that the compiled operations do not fit the installed TensorFlow."""
