"""Saves and restores the state of training, for `BackupAndRestore`."""

from __future__ import annotations

import abc
import contextlib
from pathlib import Path
from typing import Any, Dict, Optional

from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError

__all__ = ["Backup", "cannot_read", "cannot_write", "lasting", "remove"]


class Backup(abc.ABC):
    """The checkpoint of one fit, as one worker sees it."""

    @abc.abstractmethod
    def save(self, moment: Checkpoint, metrics: Dict[str, Any]) -> None:
        """Keeps the variables of the model and what else there is.

        Args:
            moment: where this worker is in its data, and what its callbacks remember.
            metrics: variables of metrics to keep besides, by name.

        Raises:
            CheckpointError: it cannot be written.
        """

    @abc.abstractmethod
    def restore(self) -> Optional[Checkpoint]:
        """Gives the variables their values, but those of metrics; returns what was saved, None where training begins anew.

        Raises:
            CheckpointError: the file is damaged or another model's, or cannot be read.
        """

    @abc.abstractmethod
    def end(self, *, delete: bool, saved: bool) -> None:
        """Ends the backups of a fit.

        Args:
            delete: whether the checkpoint is not needed any more.
            saved: whether this worker has not trained since it saved.
        """


def lasting(facts: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the variables that a checkpoint lists, without those of metrics."""
    return {name: fact for name, fact in facts.items() if not name.startswith("metrics/")}


def cannot_read(who: str, path: Path, reason: object) -> CheckpointError:
    """Returns the error to raise when `who`, a task, cannot read the file."""
    return CheckpointError(
        f"{who} cannot read the checkpoint {path}: {reason}; mend that, or give another directory"
    )


def cannot_write(who: str, path: Path, reason: object) -> CheckpointError:
    """Returns the error to raise when `who`, a task, cannot write the file."""
    return CheckpointError(
        f"{who} cannot write the checkpoint {path}: {reason}; make room there, or give another directory, and start again"
    )


def remove(path: Path) -> None:
    """Deletes a checkpoint, and its folder if nothing else is there."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()
