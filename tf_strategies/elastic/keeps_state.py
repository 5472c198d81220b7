"""The callback that keeps the state of training in memory and, if the user has asked for it, in a file."""

from __future__ import annotations

from typing import Dict, Optional, cast

import tensorflow as tf

from tf_strategies.callbacks.backup import Backup
from tf_strategies.callbacks.backup_and_restore import BackupAndRestore
from tf_strategies.callbacks.resuming import Resuming
from tf_strategies.elastic.departure import Departure
from tf_strategies.elastic.memory import Memory, MemoryBackup
from tf_strategies.elastic.moment_file import FileTimes, MomentFile
from tf_strategies.elastic.reading import VariableLists
from tf_strategies.errors import OptionsError
from tf_strategies.keras.atomic_files import remove_left_over
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import accumulates_gradients
from tf_strategies.types import JsonObject

__all__ = ["KeepsState"]


class KeepsState(Resuming):
    """Keeps moments, and begins a further attempt of a `fit` at the last one.

    It does the work of a `BackupAndRestore` of the user, too: only moments that count, to which no worker goes back, are
    written to the file. The file is read if no step of the `fit` has been taken.

    Args:
        memory: where it keeps them.
        copy_every: the number of batches between two moments.
        departure: finds the place at which workers leave.
    """

    def __init__(self, memory: Memory, copy_every: int, departure: Departure) -> None:
        super().__init__("elastic=", "another worker", copy_every, delete=False, each_epoch=True)
        self._memory, self._departure = memory, departure
        self._user: Optional[BackupAndRestore] = None
        self._file: Optional[MomentFile] = None
        self._times = FileTimes(None)

    def acts_for(self, other: Resuming) -> bool:
        return isinstance(other, BackupAndRestore)

    def make_backup(self) -> Backup:
        callbacks = self.running.callbacks
        for each in [each for each in callbacks if isinstance(each, BackupAndRestore)]:
            self._user = each
            callbacks.remove(each)
        if self._user is not None:
            file = self._user.file
            if file.needs_sigterm and not self._departure.notes_signal:
                raise OptionsError(
                    "save_before_preemption=True with elastic= needs a fit in the main thread, data that can be read again, and "
                    "a script that does not handle SIGTERM itself; leave the argument out if SIGTERM may end the process at once"
                )
            self._file, self._times = MomentFile(file, self.model, self.strategy), FileTimes(file.save_freq)
            if self.strategy is None or self.strategy.rank == 0:
                remove_left_over(file.path)
        self._lists = VariableLists(self.model, self.strategy)
        return MemoryBackup(self._memory, self.model, self.strategy, self._file, self._lists)

    def listed_metrics(self) -> Dict[str, tf.Variable]:
        return self._lists.of_metrics()

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        self._memory.on_caught_up()  # Keras 2 makes the variables of metrics in its first step.
        super().on_train_batch_end(batch, logs)
        if not self._strategy_of_model.has_local_steps:
            self._memory.on_step()

    def on_train_end(self, logs: Optional[Logs] = None) -> None:
        self._write_if_due()
        super().on_train_end(logs)

    def took(self, batches: int) -> None:
        super().took(batches)
        self._times.batches_ended(batches)

    def confirmed(self) -> None:
        self._note_moment()
        super().confirmed()

    def may_save_here(self) -> bool:
        return not (self._is_between_averages or accumulates_gradients(self.model))

    @property
    def _strategy_of_model(self) -> GroupStrategy:
        return cast(GroupStrategy, self.model.distribute_strategy)

    @property
    def _is_between_averages(self) -> bool:
        return self._strategy_of_model.is_between_averages(self.model)

    def further_facts(self) -> JsonObject:
        return self._times.facts()

    def leaves_here(self) -> bool:
        """Does the same as the method of the base class. What a worker has accumulated would leave with it."""
        return not accumulates_gradients(self.model) and self._departure.leaves_here()

    def leave(self, place: str) -> None:
        self._departure.leave(place, None if self._file is None else self._write)

    def delete_file(self) -> None:
        """Deletes the file, unless the user keeps it. All workers must have come to the end of `fit`."""
        if self._file is not None:
            self._file.delete()

    def forget_fit(self) -> None:
        """Removes what an attempt that failed has left in the model."""
        if self._fit is not None:
            self._fit.forget()
            self._fit = None

    def end_part(self, *, saves: bool) -> None:
        if self.batches == 0:
            self._times.epoch_ended(stops=self.stopped)
        super().end_part(saves=saves or (self._times.is_due and self.may_save_here()))

    def save(self) -> None:
        is_written = self._file is not None and (self._times.is_due or self.is_leaving)
        if is_written or self._is_between_averages:  # the file has one value of each slot, too
            self._strategy_of_model.make_equal(self.model)
        super().save()
        if not self._memory.waits:
            self._note_moment()

    def _note_moment(self) -> None:
        """Notes that the last moment counts. With local steps newcomers join here, so that few steps are repeated."""
        self._write_if_due()
        is_end = self.batches == 0 and (self.stopped or self.epoch >= self.params["epochs"])
        if self._strategy_of_model.has_local_steps and not (self.is_leaving or is_end):
            self._memory.on_step()

    def restore(self) -> None:
        super().restore()
        if self._memory.moment is not None:
            self._times.go_on(self._memory.moment.position.facts)

    def _write_if_due(self) -> None:
        if self._times.is_due:
            self._write()

    def _write(self) -> None:
        """Writes the last moment that counts."""
        if self._file is not None and self._memory.moment is not None:
            self._file.keep(self._memory.moment)
        self._times.is_due = False
