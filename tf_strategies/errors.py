"""The errors this package raises, and the core's codes. Imports no TensorFlow."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The error codes of the C++ core. Their values equal those of `Code` in ops/base/status.h."""

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
    """Serves as the base class of all errors of this package."""


# By this AutoGraph knows that it can raise the same class again, with the lines of the user's function in the message.
TfStrategiesError.__init__ = Exception.__init__  # type: ignore[method-assign]


class ClusterConfigError(TfStrategiesError, ValueError):
    """Reports that TF_CONFIG is wrong. The message says what was found in it and how to correct it."""


class OptionsError(TfStrategiesError, ValueError):
    """Reports that an option has a value that is not allowed."""


class BootstrapError(TfStrategiesError, RuntimeError):
    """Reports that the group could not form, or failed before its first use.

    The message names the task, its address and the remedy.
    """


class PerhapsFormedError(BootstrapError):
    """Reports that this worker cannot know whether the others have formed the group with it."""


class JoinsLaterError(BootstrapError):
    """Reports that the others form their first group without this worker, which can join them when they train."""


class OthersTrainError(BootstrapError):
    """Reports that a group of which this worker did not know trains already.

    Attributes:
        workers: the addresses of all workers that it knows.
    """

    def __init__(self, message: str, workers: tuple[str, ...]) -> None:
        super().__init__(message)
        self.workers = workers


class DriftError(TfStrategiesError, ValueError):
    """Reports that workers or replicas have different values of a variable or a setting that must be equal.

    The message shows both values.
    """


class BuildMismatchError(TfStrategiesError, ImportError):
    """Reports that the compiled operations do not fit the installed TensorFlow."""


class LaunchError(TfStrategiesError, RuntimeError):
    """Reports that a process of `tfs.launch` has failed, or that the processes took too long.

    Attributes:
        task: the process that failed first, such as "worker 1"; None if none failed by itself.
        traceback: the text of its traceback; "" if it ended without an exception.
    """

    def __init__(self, message: str, task: str | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.task = task
        self.traceback = traceback
