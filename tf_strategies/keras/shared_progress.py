"""Keeps the progress of the workers of a fit, for variables that outlive the workers."""

from __future__ import annotations

import abc
import enum
from typing import List, Sequence

__all__ = ["Pace", "RefusedError", "SharedProgress"]


class Pace(enum.Enum):
    """Says how the workers of a fit go through their batches.

    Attributes:
        OWN: each has batches of its own.
        SHARED: each has a share of every batch, and a slow one may be behind.
        IN_STEP: each has a share of every batch, and all are at the same one.
    """

    OWN = enum.auto()
    SHARED = enum.auto()
    IN_STEP = enum.auto()


class RefusedError(Exception):
    """The chief could not begin the fit: its name and its reason."""


class SharedProgress(abc.ABC):
    """Keeps a record of bytes for each worker of one fit on the servers while it runs.

    It is open from when the chief has said that the variables hold what training begins or goes on with, for as long as all
    servers live.

    Attributes:
        rank: this worker's number; 0 is the chief.
        size: how many workers there are.
        pace: how they go through their batches.
    """

    rank: int
    size: int
    pace: Pace

    @abc.abstractmethod
    def name_of(self, rank: int) -> str:
        """Returns how messages name a worker."""

    @abc.abstractmethod
    def is_open(self) -> bool:
        """Returns True if the fit is open on all servers."""

    @abc.abstractmethod
    def is_torn(self) -> bool:
        """Returns True if it was open, and some servers have been started anew since."""

    @abc.abstractmethod
    def open(self, records: Sequence[bytes]) -> None:
        """Tells that the variables are ready, and gives each worker a first record, b"" for none; on the chief."""

    @abc.abstractmethod
    def refuse(self, reason: str) -> None:
        """Tells the waiting workers that the variables cannot be made ready; on the chief."""

    @abc.abstractmethod
    def wait_until_open(self) -> None:
        """Waits for the chief.

        Raises:
            RefusedError: the chief has refused; the message is its reason.
            BootstrapError: it has not opened the fit within the timeout; names it.
        """

    @abc.abstractmethod
    def keep(self, record: bytes, moment: str) -> None:
        """Leaves this worker's record of a moment, in place of its former one."""

    @abc.abstractmethod
    def records(self, moment: str = "") -> List[bytes]:
        """Returns the last record of each worker, by rank; b"" of one that has none. When open.

        Waits a little for those of this moment, where workers are in step.
        """

    @abc.abstractmethod
    def step(self) -> int:
        """Returns how many updates the variables have had."""

    @abc.abstractmethod
    def set_step(self, step: int) -> None:
        """Sets that number."""

    @abc.abstractmethod
    def wait_for_others(self) -> str:
        """Waits at the end of a fit for workers that still train.

        Returns the reason if that failed, "" if not.
        """
