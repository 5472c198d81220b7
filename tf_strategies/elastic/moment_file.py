"""Keeps moments in the file of a `BackupAndRestore`, so that training can also go on when all workers are lost."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Dict, List, Optional, Union

import numpy as np
import tensorflow as tf

from tf_strategies.callbacks import group_state
from tf_strategies.callbacks.backup import cannot_read, remove
from tf_strategies.callbacks.backup_and_restore import BackupFile
from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError, read_facts
from tf_strategies.callbacks.group_backup import GroupBackup
from tf_strategies.callbacks.resuming import place_name
from tf_strategies.elastic.moment import Moment, parts_of
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import metric_variables, replicas_of, training_variables
from tf_strategies.keras.types import Model
from tf_strategies.types import JsonObject

__all__ = ["FileTimes", "MomentFile"]

_FACT = "file_times"
_log = logging.getLogger("tf_strategies")


class FileTimes:
    """Tells when a moment is written to the file. All workers count the same, also those that have come back.

    Args:
        save_freq: as in `BackupAndRestore`; None for no file.

    Attributes:
        is_due: whether the next moment is written. It stays so until it has been written.
    """

    def __init__(self, save_freq: Union[str, int, None]) -> None:
        self._save_freq = save_freq
        self._batches, self.is_due = 0, False

    def batches_ended(self, batches: int) -> None:
        """Notes the end of batches."""
        self._batches += batches
        if isinstance(self._save_freq, int) and self._batches >= self._save_freq:
            self._batches, self.is_due = 0, True

    def epoch_ended(self, *, stops: bool) -> None:
        """Notes the end of an epoch; `stops`: training ends there."""
        if self._save_freq == "epoch" or (self._save_freq is not None and stops):
            self.is_due = True

    def facts(self) -> JsonObject:
        """Returns what a moment remembers of them."""
        return {_FACT: [self._batches, self.is_due]}

    def go_on(self, facts: JsonObject) -> None:
        """Continues from the facts of a moment."""
        self._batches, self.is_due = facts.get(_FACT, [0, False])


class MomentFile(GroupBackup):
    """Writes moments to the file of the chief, and begins at one. `keep` and `moment` are collectives.

    Each worker may have a file, if workers do not share a folder and several have been the chief. Training begins at the
    farthest one.

    Args:
        file: the file.
        model: the model that is trained.
        strategy: the strategy of the model; None for one replica.
    """

    def __init__(self, file: BackupFile, model: Model, strategy: Optional[GroupStrategy]) -> None:
        super().__init__(file.path, model, strategy)
        self._deletes = file.deletes
        self._kept: Optional[Moment] = None
        self._holder = 0

    def keep(self, moment: Moment) -> None:
        """Writes a moment, if it is not the last one that was written.

        Raises:
            CheckpointError: the file cannot be written.
        """
        if moment is self._kept:
            return
        variables = {**training_variables(self.model), **metric_variables(self.model)}
        parts = parts_of(moment, variables, is_first=self.rank == 0)
        values = {name: [np.asarray(part) for part in each] for name, each in parts.items()}
        for name, variable in training_variables(self.model).items():
            if name not in values:  # a newcomer has its own, such as the state of a random generator
                values[name] = [part.numpy() for part in replicas_of(variable)]
        state = group_state.collect(self.strategy, {name: variables[name] for name in values}, values)
        facts = {name: fact for name, fact in moment.position.facts.items() if name != _FACT}
        arrays = {**state.arrays, **moment.position.arrays}
        self.write(Checkpoint({**facts, "variables": state.facts}, arrays))
        self._kept = moment

    def moment(self) -> Optional[Moment]:
        """Returns the moment of the farthest file, or None if there is none.

        Raises:
            CheckpointError: a file is damaged, cannot be read, or belongs to another model.
        """
        checkpoint = self.found()
        if checkpoint is None:
            return None
        facts = dict(checkpoint.facts)
        if self.rank == 0:
            place = place_name(facts["epoch"], facts["batches"])
            _log.warning(
                "training begins at %s, from the backup of %s: %s",
                place,
                self.name_of(self._holder),
                self.path,
            )
        described: JsonObject = facts.pop("variables")
        state = Checkpoint(described, checkpoint.arrays)
        variables = training_variables(self.model)
        values: Dict[str, List[tf.Tensor]] = {}
        sums: Dict[str, np.ndarray] = {}
        for name, fact in described.items():
            array = checkpoint.arrays[name]
            if fact["sum"]:
                total = array.sum(axis=0) if fact["each"] else array * fact["replicas"]
                sums[name] = total.astype(array.dtype)
            elif name in variables:
                parts = group_state.for_replicas(self.strategy, state, name, variables[name])
                values[name] = [tf.constant(part) for part in parts]
            else:
                values[name] = [tf.constant(array[0] if fact["each"] else array)]
        of_callbacks = {name: array for name, array in checkpoint.arrays.items() if name not in described}
        return Moment(Checkpoint(facts, of_callbacks), values, sums)

    def holder(self) -> int:
        """Returns the rank of the worker whose file is farthest."""
        text = json.dumps(self._place())
        answers = [text] if self.strategy is None else self.strategy.exchange(text, "the place of the backup")
        places = [json.loads(answer) for answer in answers]
        for place in places:
            if isinstance(place, str):
                raise CheckpointError(place)
        self._holder = places.index(max(places))
        return self._holder

    def delete(self) -> None:
        """Deletes the file of this worker, unless the user keeps it. All workers must have come to the end of `fit`."""
        with contextlib.nullcontext() if self.rank == 0 else contextlib.suppress(OSError):
            if self._deletes:
                remove(self.path)

    def _place(self) -> Union[str, List[int]]:
        """Returns the place of the file of this worker, or an error."""
        try:
            facts = read_facts(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            return str(cannot_read(self.name_of(self.rank), self.path, error))
        except CheckpointError as error:
            return f"{self.name_of(self.rank)}: {error}"
        return [facts["epoch"], facts["batches"]]
