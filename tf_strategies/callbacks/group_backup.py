"""Saves and restores the checkpoint of workers that train in step, or of a single process."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional

from tf_strategies.callbacks import group_state
from tf_strategies.callbacks.backup import Backup, cannot_read, cannot_write, lasting, remove
from tf_strategies.callbacks.checkpoint_file import Checkpoint, parse, write
from tf_strategies.callbacks.exchange import from_worker
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import build_optimizer, training_variables
from tf_strategies.keras.types import Model, Variable
from tf_strategies.texts import utf8

__all__ = ["GroupBackup"]


class GroupBackup(Backup):
    """Saves and restores the model on all workers. All methods are collectives, and raise errors on all workers.

    Args:
        path: the path of the chief's file.
        model: the model that is trained.
        strategy: the strategy of the model; None for a single process.

    Attributes:
        rank: the number of this worker.
    """

    def __init__(self, path: Path, model: Model, strategy: Optional[GroupStrategy]) -> None:
        self.path = path
        self.model = model
        self.strategy = strategy
        self.rank = 0 if strategy is None else strategy.rank
        self._waiting: Optional[Checkpoint] = None

    def save(self, moment: Checkpoint, metrics: Dict[str, Variable]) -> None:
        """Writes the file. In an epoch of unknown length, which may have ended, it waits for `confirm`.

        Keras has no logs for an epoch that continues without a batch.
        """
        strategy = self.model.distribute_strategy
        if isinstance(strategy, GroupStrategy):
            strategy.make_equal(self.model)
        state = group_state.collect(self.strategy, {**training_variables(self.model), **metrics})
        facts = {**moment.facts, "variables": state.facts}
        saved = Checkpoint(facts, {**state.arrays, **moment.arrays})
        may_be_end = facts["batches"] and facts["place"]["steps"] is None
        self._waiting = saved if may_be_end else None
        if not may_be_end:
            self.write(saved)

    @property
    def waits(self) -> bool:
        return self._waiting is not None

    def confirm(self) -> bool:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.write(waiting)
        return waiting is not None

    def write(self, saved: Checkpoint) -> None:
        """Writes the file of the chief.

        Raises:
            CheckpointError: it cannot be written.
        """
        failure = b""
        if self.rank == 0:
            try:
                write(self.path, saved)
            except OSError as error:
                failure = utf8(str(error))
        failure = from_worker(self.strategy, 0, failure)
        if failure:
            raise cannot_write(self.name_of(0), self.path, failure.decode())

    def restore(self) -> Optional[Checkpoint]:
        checkpoint = self.found()
        if checkpoint is not None:
            variables = training_variables(self.model)
            state = Checkpoint(lasting(checkpoint.facts["variables"]), checkpoint.arrays)
            group_state.assign(self.strategy, state, variables)
        return checkpoint

    def found(self) -> Optional[Checkpoint]:
        """Returns the checkpoint from which training continues, or None. It fits the model, whose optimizer is built.

        Raises:
            CheckpointError: the file is damaged, cannot be read, or belongs to another model.
        """
        data = self._read(self.holder())
        if data is None:
            return None
        checkpoint = parse(data, str(self.path))
        build_optimizer(self.model)
        state = Checkpoint(lasting(checkpoint.facts["variables"]), checkpoint.arrays)
        group_state.check(state, training_variables(self.model), str(self.path))
        return checkpoint

    def holder(self) -> int:
        """Returns the rank of the worker whose file counts: the chief."""
        return 0

    def end(self, *, delete: bool, saved: bool) -> None:
        if delete and self.rank == 0:
            remove(self.path)

    def _read(self, rank: int) -> Optional[bytes]:
        """Returns a worker's checkpoint, or None if it has none."""
        found = b""
        if self.rank == rank:
            try:
                found = b"+" + self.path.read_bytes()
            except FileNotFoundError:
                pass
            except OSError as error:
                found = b"-" + utf8(str(error))
        found = from_worker(self.strategy, rank, found)
        if found.startswith(b"-"):
            raise cannot_read(self.name_of(rank), self.path, found[1:].decode())
        return found[1:] or None if found else None

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker, for messages."""
        return "this process" if self.strategy is None else self.strategy.name_of(rank)
