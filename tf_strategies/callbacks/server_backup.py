"""Saves and restores the checkpoint of workers whose variables are on parameter servers.

The chief writes and reads the file. It contains every variable as a whole, whichever servers hold it, and a
record of each worker: its position in its data, the states of its callbacks, and its local variables (sums of
metrics, random states). Each worker keeps its record on the first server. Records and variables outlive the
workers, so they are restored only after servers were restarted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional

import numpy as np
import tensorflow as tf
from absl import logging

from tf_strategies.callbacks import callback_states, group_state, worker_records
from tf_strategies.callbacks.backup import Backup, cannot_read, cannot_write, lasting, remove
from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError, pack, parse, write
from tf_strategies.keras.model_state import build_optimizer, training_variables
from tf_strategies.keras.shared_progress import Pace, RefusedError, SharedProgress
from tf_strategies.keras.types import Model

__all__ = ["ServerBackup"]


class ServerBackup(Backup):
    """Saves and restores the model of a worker.

    Errors of the chief's file are raised on all workers by `restore`, and on the chief by `save`.

    Args:
        path: of the chief's file.
        model: what is trained.
        progress: the progress of this `fit` on the servers.
    """

    def __init__(self, path: Path, model: Model, progress: SharedProgress) -> None:
        self._path = path
        self._model = model
        self._progress = progress
        self._is_chief = progress.rank == 0
        self._last: Optional[Checkpoint] = None

    def save(self, moment: Checkpoint, metrics: Dict[str, tf.Variable]) -> None:
        variables = {**training_variables(self._model), **metrics}
        own = group_state.collect(None, _of_this_worker(variables))
        facts = {
            **moment.facts,
            "callbacks": callback_states.without_weights(moment.facts["callbacks"]),
            "variables": own.facts,
        }
        self._progress.keep(pack(Checkpoint(facts, own.arrays)), _name_of(moment))
        self._last = moment
        if self._is_chief:
            self._write(moment, variables)

    def restore(self) -> Optional[Checkpoint]:
        if self._model.built:
            build_optimizer(self._model)
        if self._is_chief and not self._progress.is_open():
            return self._restore_servers()
        try:
            self._progress.wait_until_open()
        except RefusedError as error:
            raise CheckpointError(str(error)) from None
        texts = self._progress.records()
        records = [parse(text, "on the first server") if text else None for text in texts]
        record = worker_records.own(records, self._progress.rank, own_pace=self._progress.pace is Pace.OWN)
        if record is not None:
            self._assign_own(record)
        return record

    def end(self, *, delete: bool, saved: bool) -> None:
        awaited = self._progress.wait_for_others()
        if not self._is_chief:
            return
        if awaited:
            logging.warning(
                "%s keeps the checkpoint %s, because other workers still train: %s",
                self._progress.name_of(0),
                self._path,
                awaited,
            )
        elif delete:
            remove(self._path)
        elif self._last is not None and saved and self._progress.pace is Pace.OWN:
            self._write(self._last, training_variables(self._model))

    def _write(self, moment: Checkpoint, variables: Dict[str, tf.Variable]) -> None:
        records = self._progress.records(_name_of(moment))
        step = self._progress.step()
        values = group_state.collect(None, variables)
        facts = {**moment.facts, "variables": values.facts, "step": step, "workers": self._progress.size}
        kept = {f"worker/{rank}": np.frombuffer(text, np.uint8) for rank, text in enumerate(records)}
        try:
            write(self._path, Checkpoint(facts, {**values.arrays, **moment.arrays, **kept}))
        except OSError as error:
            raise cannot_write(self._progress.name_of(0), self._path, error) from error

    def _restore_servers(self) -> Optional[Checkpoint]:
        try:
            return self._restore_file()
        except (CheckpointError, ValueError, tf.errors.FailedPreconditionError) as error:
            self._progress.refuse(str(error))
            raise

    def _restore_file(self) -> Optional[Checkpoint]:
        data = self._read()
        if data is None:
            if self._progress.is_torn():
                raise CheckpointError(
                    "a server was restarted while other servers hold the variables of this fit, and there "
                    f"is no checkpoint {self._path} to restore; start all servers and workers again"
                )
            self._progress.open([b""] * self._progress.size)
            return None
        checkpoint = parse(data, str(self._path))
        build_optimizer(self._model)
        variables = training_variables(self._model)
        state = Checkpoint(lasting(checkpoint.facts["variables"]), checkpoint.arrays)
        group_state.check(state, variables, str(self._path))
        group_state.assign(None, state, variables)
        if "step" in checkpoint.facts:
            self._progress.set_step(checkpoint.facts["step"])
        records = worker_records.to_begin_with(
            self._kept_records(checkpoint), self._progress.size, own_pace=self._progress.pace is Pace.OWN
        )
        self._progress.open([b"" if record is None else pack(record) for record in records])
        position = worker_records.position_of(records[0])
        return None if position is None else worker_records.at(checkpoint, position)

    def _kept_records(self, checkpoint: Checkpoint) -> List[Optional[Checkpoint]]:
        """Returns the chief's record from a file that was written without parameter servers."""
        workers = checkpoint.facts.get("workers")
        if workers is None:
            callbacks = callback_states.without_weights(checkpoint.facts["callbacks"])
            return [Checkpoint({**checkpoint.facts, "callbacks": callbacks, "variables": {}}, {})]
        texts = [checkpoint.arrays[f"worker/{rank}"].tobytes() for rank in range(workers)]
        return [parse(text, str(self._path)) if text else None for text in texts]

    def _assign_own(self, record: Checkpoint) -> None:
        kept = Checkpoint(lasting(record.facts["variables"]), record.arrays)
        if kept.facts:
            variables = _of_this_worker(training_variables(self._model))
            group_state.check(kept, variables, "on the first server")
            group_state.assign(None, kept, variables)

    def _read(self) -> Optional[bytes]:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise cannot_read(self._progress.name_of(0), self._path, error) from error


def _name_of(moment: Checkpoint) -> str:
    return f"epoch {moment.facts['epoch']} batch {moment.facts['batches']}"


def _of_this_worker(variables: Dict[str, tf.Variable]) -> Dict[str, tf.Variable]:
    return {
        name: variable
        for name, variable in variables.items()
        if not getattr(variable, "lives_on_servers", False)
    }
