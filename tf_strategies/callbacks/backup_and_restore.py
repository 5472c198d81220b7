"""`BackupAndRestore`: training that was killed goes on as if it had not been."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Optional, Union

from tf_strategies.callbacks import callback_states, group_state
from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError, parse, write
from tf_strategies.callbacks.exchange import from_chief
from tf_strategies.errors import OptionsError
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.hooks import Hooks
from tf_strategies.keras.model_state import build_optimizer, metric_variables, training_variables
from tf_strategies.keras.running_fit import RunningFit, running_fit
from tf_strategies.keras.worker_strategy import workers_of

__all__ = ["BackupAndRestore"]

_FILE = "training.checkpoint"


class BackupAndRestore(Hooks):
    """Saves the state of training as `fit` goes, and goes on from there when the script is started again.

    As Keras's callback of this name, but exact, and for many workers: with deterministic data and layers, a run that was killed
    at any step, on any worker, ends with the same bits as one that was not. Saved are weights, statistics, random states of
    layers, all that the optimizer keeps, the sums of metrics within an epoch, the place in the data, and what
    EarlyStopping, ReduceLROnPlateau, ModelCheckpoint and History remember. The chief writes one file, which is whole or the
    former one whenever it is killed; when training begins the chief alone reads, and all receive. With another number of
    workers or replicas, what each kept on its own is averaged or added up.

    On the place in the data: the input is made anew and read up to it, without training. What shuffles must be seeded
    (`shuffle(n, seed=…)`, `keras.utils.set_random_seed`). Without `steps_per_epoch`, the batches of the current epoch are
    read again; with it, and for arrays in Keras 2, all since the start, as one iterator lives on. `fit` must be given the same
    arguments, but `epochs` may be larger. Use one directory for each call of `fit`.

    Not exact: Python generators, PyDatasets and Sequences, which may be read ahead; Dropout in Keras 2, unless
    `enable_tf_random_generator()` was called (its state is hidden); what callbacks of your own remember; a dataset that
    shuffles within `repeat(n)` without `steps_per_epoch`.

    Args:
        directory: where the chief keeps `training.checkpoint`; it need not be shared. It is made if need be.
        save_freq: "epoch", or a number of batches between savings. With `steps_per_execution`, at the next execution's end.
        delete_checkpoint: whether to remove the file when `fit` ends well.

    Raises:
        OptionsError: an argument has a value it cannot have.
        CheckpointError: on all workers, from `fit`: the file is damaged, is another model's, or cannot be written.

    Example:
        >>> model.fit(dataset, epochs=90, callbacks=[tfs.callbacks.BackupAndRestore("backup", save_freq=500)])
    """

    def __init__(
        self,
        directory: Union[str, Path],
        *,
        save_freq: Union[str, int] = "epoch",
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if not str(directory):
            raise OptionsError("directory must be the path of a folder; got an empty one")
        if save_freq != "epoch" and (
            isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1
        ):
            raise OptionsError(
                f'save_freq must be "epoch" or a number of batches, at least 1; got {save_freq!r}'
            )
        self._path = Path(directory) / _FILE
        self._save_freq = save_freq
        self._delete = delete_checkpoint
        self._fit: Optional[RunningFit] = None

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._fit = None  # An earlier `fit` may have ended with an error.

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        del logs
        fit = self._fit = self._fit or self._find_fit()
        if fit.callbacks[-1] is not self:
            fit.callbacks.append(self)  # Called again, after all others have begun, and last from now on.
            return
        while fit.callbacks.index(self) < len(fit.callbacks) - 1:
            fit.callbacks.remove(self)
        self._strategy = group_of(self.model)
        strategy = workers_of(self.model)
        if strategy is not None and self._strategy is None:
            raise OptionsError(
                f"BackupAndRestore needs workers that take every step together, not {type(strategy).__name__}; "
                f"{strategy.how_to_back_up}"
            )
        self._epoch = self._batches = self._since_saving = 0
        self._save_at_end = self._stopped = False
        self._metrics_to_come: Optional[Checkpoint] = None
        self._restore()

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        del logs
        self._epoch = epoch
        self._fit.forget()
        if self._metrics_to_come is None:
            return
        present = metric_variables(self.model)
        if set(present) == set(self._metrics_to_come.facts):
            group_state.assign(self._strategy, self._metrics_to_come, present)
            self._metrics_to_come = None

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        del logs
        self._add_metrics_to_come()
        done = batch + 1 - self._batches
        self._batches = batch + 1
        self._fit.took(done)
        self._since_saving += done
        if self._save_freq == "epoch" or self._since_saving < self._save_freq:
            self._save_at_end = False
            return
        self._since_saving = 0
        self._save_at_end = True  # If this was the last batch, what is saved should be the end of the epoch.
        if not self._fit.is_last(self._batches):
            self._save(metrics=metric_variables(self.model))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        del logs
        self._epoch, self._batches = epoch + 1, 0
        self._stopped = bool(self.model.stop_training)
        if self._save_freq == "epoch" or self._save_at_end or self._stopped:
            self._save(metrics={})
        self._save_at_end = False

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        del logs
        if self._fit is not None:
            self._fit.forget()
            self._fit = None
        if self._delete and (self._strategy is None or self._strategy.rank == 0):
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._path.parent.rmdir()

    def _find_fit(self) -> RunningFit:
        strategy = self.model.distribute_strategy
        if group_of(self.model) is None and strategy.extended._in_multi_worker_mode():
            raise OptionsError(
                f"BackupAndRestore cannot save for the workers of {type(strategy).__name__}; use a strategy of tf_strategies, or "
                "Keras's own BackupAndRestore"
            )
        fit = running_fit(self.model)
        if fit is None:
            raise OptionsError(
                "BackupAndRestore works within Model.fit of Keras 3, tf_keras or Keras 2.15; in a loop of your own use "
                "tf.train.CheckpointManager"
            )
        return fit

    def _save(self, metrics: Dict[str, Any]) -> None:
        variables = {**training_variables(self.model), **metrics}
        state = group_state.collect(self._strategy, variables)
        remembered, weights = callback_states.snapshot(self._fit.callbacks)
        facts = {
            "epoch": self._epoch,
            "batches": self._batches,
            "stopped": self._stopped,
            "place": self._fit.place(self._batches),
            "callbacks": remembered,
            "variables": state.facts,
        }
        failure = b""
        if self._strategy is None or self._strategy.rank == 0:
            try:
                write(self._path, Checkpoint(facts, {**state.arrays, **weights}))
            except OSError as error:
                failure = str(error).encode()
        failure = from_chief(self._strategy, failure)
        if failure:
            raise CheckpointError(
                f"{self._chief} cannot write the checkpoint {self._path}: {failure.decode()}; make room there, or give another "
                "directory, and start again"
            )

    def _restore(self) -> None:
        data = self._read()
        if data is None:
            return
        checkpoint = parse(data, str(self._path))
        facts, arrays = checkpoint
        listed = facts["variables"]
        build_optimizer(self.model)
        lasting = {name: fact for name, fact in listed.items() if not name.startswith("metrics/")}
        variables = training_variables(self.model)
        state = Checkpoint(lasting, arrays)
        group_state.check(state, variables, str(self._path))
        group_state.assign(self._strategy, state, variables)
        callback_states.restore(self._fit.callbacks, facts["callbacks"], arrays)
        self._epoch, self._batches = facts["epoch"], facts["batches"]
        sums = {name: fact for name, fact in listed.items() if name not in lasting}
        if sums:
            self._metrics_to_come = Checkpoint(sums, arrays)
        if facts["stopped"]:
            self._fit.end_now()
        else:
            self._fit.go_to(self._epoch, self._batches, facts["place"])

    def _read(self) -> Optional[bytes]:
        """What the chief has; None when it has nothing."""
        found = b""
        if self._strategy is None or self._strategy.rank == 0:
            try:
                found = b"+" + self._path.read_bytes()
            except FileNotFoundError:
                pass
            except OSError as error:
                found = b"-" + str(error).encode()
        found = from_chief(self._strategy, found)
        if found.startswith(b"-"):
            raise CheckpointError(
                f"{self._chief} cannot read the checkpoint {self._path}: {found[1:].decode()}; mend that, or give another "
                "directory"
            )
        return found[1:] or None if found else None

    @property
    def _chief(self) -> str:
        return "this process" if self._strategy is None else self._strategy.name_of(0)

    def _add_metrics_to_come(self) -> None:
        """Keras 2 makes the metrics in its first step; by then they hold that step alone."""
        if self._metrics_to_come is None:
            return
        waiting, self._metrics_to_come = self._metrics_to_come, None
        present = metric_variables(self.model)
        group_state.check(waiting, present, str(self._path))
        group_state.add(self._strategy, waiting, present)
