"""Defines the store for the progress of the workers of a fit, for variables that outlive the workers."""

from __future__ import annotations

import abc
import enum
from typing import List, Sequence

__all__ = ["Pace", "RefusedError", "SharedProgress"]


class Pace(enum.Enum):
    """The ways in which the workers of a fit go through their batches.

    Attributes:
        OWN: each worker has its own batches.
        SHARED: each worker has a share of every batch, and a slow worker may be behind.
        IN_STEP: each worker has a share of every batch, and all are at the same batch.
    """

    OWN = enum.auto()
    SHARED = enum.auto()
    IN_STEP = enum.auto()


class RefusedError(Exception):
    """The chief could not begin the fit. The message names the chief and its reason."""


class SharedProgress(abc.ABC):
    """Keeps a record, which is bytes, for each worker of a running fit on the servers.

    It is open from the moment when the chief has initialized or restored the variables, as long as all
    servers live.

    Attributes:
        rank: this worker's number; 0 is the chief.
        size: the number of workers.
        pace: how the workers go through their batches.
    """

    rank: int
    size: int
    pace: Pace

    @abc.abstractmethod
    def name_of(self, rank: int) -> str:
        """Returns the name of a worker in messages."""

    @abc.abstractmethod
    def is_open(self) -> bool:
        """Returns True if the fit is open on all servers."""

    @abc.abstractmethod
    def is_torn(self) -> bool:
        """Returns True if the fit was open, and some servers have been restarted since."""

    @abc.abstractmethod
    def open(self, records: Sequence[bytes]) -> None:
        """Opens the fit, and gives each worker a first record, b"" for none.

        The chief calls it when the variables are ready.
        """

    @abc.abstractmethod
    def refuse(self, reason: str) -> None:
        """Tells the waiting workers that the variables cannot be made ready. The chief calls it."""

    @abc.abstractmethod
    def wait_until_open(self) -> None:
        """Waits until the chief has opened the fit.

        Raises:
            RefusedError: the chief has refused; the message is its reason.
            BootstrapError: the chief has not opened the fit within the timeout.
        """

    @abc.abstractmethod
    def keep(self, record: bytes, moment: str) -> None:
        """Saves this worker's record of a moment, in place of its previous record."""

    @abc.abstractmethod
    def records(self, moment: str = "") -> List[bytes]:
        """Returns the last record of each worker, by rank; b"" for a worker without one. The fit must be open.

        If workers are in step, it waits a little for the records of this moment.
        """

    @abc.abstractmethod
    def step(self) -> int:
        """Returns the number of updates of the variables."""

    @abc.abstractmethod
    def set_step(self, step: int) -> None:
        """Sets the number of updates of the variables."""

    @abc.abstractmethod
    def wait_for_others(self) -> str:
        """Waits at the end of a fit for workers that are still training.

        Returns "" on success, otherwise the reason of the failure.
        """
