"""Saves and restores the checkpoint of workers that train in step, or of a single process."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional

from tf_strategies.callbacks import group_state
from tf_strategies.callbacks.backup import Backup, cannot_read, cannot_write, lasting, remove
from tf_strategies.callbacks.checkpoint_file import Checkpoint, parse, write
from tf_strategies.callbacks.exchange import from_chief
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
    """

    def __init__(self, path: Path, model: Model, strategy: Optional[GroupStrategy]) -> None:
        self._path = path
        self._model = model
        self._strategy = strategy
        self._is_chief = strategy is None or strategy.rank == 0
        self._chief = "this process" if strategy is None else strategy.name_of(0)
        self._waiting: Optional[Checkpoint] = None

    def save(self, moment: Checkpoint, metrics: Dict[str, Variable]) -> None:
        """Writes the file. In an epoch of unknown length, which may have ended, it waits for `confirm`.

        Keras has no logs for an epoch that continues without a batch.
        """
        strategy = self._model.distribute_strategy
        if isinstance(strategy, GroupStrategy):
            strategy.make_equal(self._model)
        state = group_state.collect(self._strategy, {**training_variables(self._model), **metrics})
        facts = {**moment.facts, "variables": state.facts}
        saved = Checkpoint(facts, {**state.arrays, **moment.arrays})
        may_be_end = facts["batches"] and facts["place"]["steps"] is None
        self._waiting = saved if may_be_end else None
        if not may_be_end:
            self._write(saved)

    @property
    def waits(self) -> bool:
        return self._waiting is not None

    def confirm(self) -> bool:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._write(waiting)
        return waiting is not None

    def _write(self, saved: Checkpoint) -> None:
        failure = b""
        if self._is_chief:
            try:
                write(self._path, saved)
            except OSError as error:
                failure = utf8(str(error))
        failure = from_chief(self._strategy, failure)
        if failure:
            raise cannot_write(self._chief, self._path, failure.decode())

    def restore(self) -> Optional[Checkpoint]:
        data = self._read()
        if data is None:
            return None
        checkpoint = parse(data, str(self._path))
        build_optimizer(self._model)
        variables = training_variables(self._model)
        state = Checkpoint(lasting(checkpoint.facts["variables"]), checkpoint.arrays)
        group_state.check(state, variables, str(self._path))
        group_state.assign(self._strategy, state, variables)
        return checkpoint

    def end(self, *, delete: bool, saved: bool) -> None:
        if delete and self._is_chief:
            remove(self._path)

    def _read(self) -> Optional[bytes]:
        """Returns the chief's checkpoint, or None if it has none."""
        found = b""
        if self._is_chief:
            try:
                found = b"+" + self._path.read_bytes()
            except FileNotFoundError:
                pass
            except OSError as error:
                found = b"-" + utf8(str(error))
        found = from_chief(self._strategy, found)
        if found.startswith(b"-"):
            raise cannot_read(self._chief, self._path, found[1:].decode())
        return found[1:] or None if found else None
