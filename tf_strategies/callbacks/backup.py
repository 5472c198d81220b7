"""Saves and restores the state of training, for `BackupAndRestore`."""

from __future__ import annotations

import abc
import contextlib
from pathlib import Path
from typing import Dict, Optional

from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError
from tf_strategies.keras.types import Variable
from tf_strategies.types import JsonObject

__all__ = ["Backup", "cannot_read", "cannot_write", "lasting", "remove"]


class Backup(abc.ABC):
    """Saves and restores the checkpoint of one `fit`, on one worker."""

    @abc.abstractmethod
    def save(self, moment: Checkpoint, metrics: Dict[str, Variable]) -> None:
        """Saves the variables of the model and the state of training.

        Args:
            moment: this worker's position in its data, and the states of its callbacks.
            metrics: variables of metrics to save too, by name.

        Raises:
            CheckpointError: the checkpoint cannot be written.
        """

    @property
    def waits(self) -> bool:
        """Whether what was saved last counts only after `confirm`."""
        return False

    def confirm(self) -> bool:
        """Notes that the epoch did not end where it was saved last. Returns True if the backup has waited for that."""
        return False

    @abc.abstractmethod
    def restore(self) -> Optional[Checkpoint]:
        """Restores the variables except those of metrics.

        Returns the saved checkpoint, or None if training starts from the beginning.

        Raises:
            CheckpointError: the file is damaged, cannot be read, or belongs to another model.
        """

    @abc.abstractmethod
    def end(self, *, delete: bool, saved: bool) -> None:
        """Ends the backups of a fit.

        Args:
            delete: whether to delete the checkpoint.
            saved: whether this worker has saved after its last step.
        """


def lasting(facts: JsonObject) -> JsonObject:
    """Returns the variables that a checkpoint lists, except those of metrics."""
    return {name: fact for name, fact in facts.items() if not name.startswith("metrics/")}


def cannot_read(who: str, path: Path, reason: object) -> CheckpointError:
    """Returns the error for a task `who` that cannot read the file."""
    return CheckpointError(
        f"{who} cannot read the checkpoint {path}: {reason}; correct this, or use another directory"
    )


def cannot_write(who: str, path: Path, reason: object) -> CheckpointError:
    """Returns the error for a task `who` that cannot write the file."""
    return CheckpointError(
        f"{who} cannot write the checkpoint {path}: {reason}; free disk space or use another directory, and start again"
    )


def remove(path: Path) -> None:
    """Deletes a checkpoint, and its folder if it is empty."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()
