"""`BackupAndRestore`: resumes training that was killed, as if it had not been interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional, Union

from tf_strategies.callbacks import callback_states, group_state
from tf_strategies.callbacks.backup import Backup, lasting
from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.callbacks.group_backup import GroupBackup
from tf_strategies.callbacks.server_backup import ServerBackup
from tf_strategies.errors import OptionsError
from tf_strategies.keras import bridge
from tf_strategies.keras.atomic_files import remove_left_over
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.hooks import Hooks
from tf_strategies.keras.model_state import metric_variables
from tf_strategies.keras.running_fit import RunningFit, running_fit
from tf_strategies.keras.stopping import agree_to_stop
from tf_strategies.keras.types import Model, Variable
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["BackupAndRestore"]

_FILE = "training.checkpoint"


class BackupAndRestore(Hooks):
    """Saves the state of training during `fit`, and continues from it when the script is started again.

    It is used like the callback of this name in Keras, but it is exact, and works for many workers. With deterministic data
    and layers, a run that was killed at any step, on any worker, ends with the same bits as a run that was not.

    The file has the weights, moving statistics, random states of layers, all variables of the optimizer, the sums of metrics
    within an epoch, the place in the data, and the states of EarlyStopping, ReduceLROnPlateau, ModelCheckpoint and History.
    The chief writes it. It is complete whenever the chief is killed. When training begins, only the chief reads it, and all
    workers receive it. If the number of workers or replicas has changed, values that each had of its own are averaged or
    added up.

    To return to its place in the data, the callback reads the input again up to there, without training. Shuffling must be
    seeded (`shuffle(n, seed=…)` or `keras.utils.set_random_seed`). Without `steps_per_epoch`, the batches of the current
    epoch are read again. With it, and for arrays in Keras 2, all batches since the start are. `fit` must be given the same
    arguments; only `epochs` may be larger. Use one directory for each call of `fit`.

    With parameter servers, the chief saves the variables, the optimizer's slots and the count of steps. Each worker keeps its
    place in the data on the first server. When all processes were started again, with any number of servers and workers, the
    chief restores, and the others wait for it. A worker (or chief) that was started again alone restores nothing, since the
    servers have newer values. It continues at its own place; with SyncReplicasStrategy, at that of the worker that is
    farthest. With SyncReplicasStrategy a file is one moment of training, so the run ends with the weights it would have had.
    Random layers and backup workers are exceptions. With AsyncParameterServerStrategy the other workers train on while the
    chief saves. Each variable is whole, but some have updates that others do not have. Each worker continues where it was
    when it saved last. If their number has changed, they begin the epoch of the last one again. `fit` ends on all workers at
    the same time, so that the file exists as long as a worker may need it.

    These are not exact: Python generators, PyDatasets and Sequences, which may be read ahead; Dropout in Keras 2 without
    `enable_tf_random_generator()`, which hides its state; states of your own callbacks; a dataset that shuffles within
    `repeat(n)` without `steps_per_epoch`.

    Args:
        directory: where the chief keeps `training.checkpoint`. It need not be shared. It is created if it does not exist.
        save_freq: "epoch", or the number of batches between two saves. With `steps_per_execution`, it saves at the end of the
            next execution.
        delete_checkpoint: whether the file is removed when `fit` ends without an error.

    Raises:
        OptionsError: an argument has a value that is not allowed, or Keras is older than 3.7.
        CheckpointError: from `fit`, on all workers: the file is damaged, belongs to another model, or cannot be written (with
            parameter servers on the chief alone).
        DriftError: from `fit`, on all workers: the weights of the workers differ.
        BootstrapError: from `fit`, with parameter servers: the chief did not begin it within the timeout of the strategy.

    Example:
        >>> backup = tfs.callbacks.BackupAndRestore("backup", save_freq=500)
        >>> history = model.fit(dataset, epochs=3, verbose=0, callbacks=[backup])
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
        bridge.install()  # without a strategy, nothing else has installed the bridge

    def set_model(self, model: Model) -> None:
        super().set_model(model)
        self._fit = None  # An earlier `fit` may have ended with an error.

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        del logs
        fit = self._fit = self._fit or self._find_fit()
        if fit.callbacks[-1] is not self:
            # It is now the last callback in the list, so Keras calls it after all others.
            fit.callbacks.append(self)
            return
        while fit.callbacks.index(self) < len(fit.callbacks) - 1:
            fit.callbacks.remove(self)
        self._strategy = group_of(self.model)
        self._backup = self._make_backup()
        self._epoch = self._batches = self._since_saving = 0
        self._save_at_end = self._stopped = self._saved = False
        self._metrics_to_come: Optional[Checkpoint] = None
        self._restore()

    def on_epoch_begin(self, epoch: int, logs: Optional[Logs] = None) -> None:
        del logs
        self._epoch = epoch
        self._running.forget()
        if self._metrics_to_come is None:
            return
        present = metric_variables(self.model)
        if set(present) == set(self._metrics_to_come.facts):
            group_state.assign(self._strategy, self._metrics_to_come, present)
            self._metrics_to_come = None

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        del logs
        self._add_metrics_to_come()
        done = batch + 1 - self._batches
        self._batches = batch + 1
        self._saved = False
        self._running.took(done)
        self._since_saving += done
        if isinstance(self._save_freq, str) or self._since_saving < self._save_freq:
            self._save_at_end = False
            return
        self._since_saving = 0
        self._save_at_end = True  # If this was the last batch, the end of the epoch is saved instead.
        if not self._running.is_last(self._batches):
            self._save(metrics=metric_variables(self.model))

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        del logs
        self._epoch, self._batches = epoch + 1, 0
        agree_to_stop(self.model)
        self._stopped = bool(self.model.stop_training)
        if self._save_freq == "epoch" or self._save_at_end or self._stopped:
            self._save(metrics={})
        self._save_at_end = False

    def on_train_end(self, logs: Optional[Logs] = None) -> None:
        del logs
        if self._fit is not None:
            self._fit.forget()
            self._fit = None
        self._backup.end(delete=self._delete, saved=self._saved)

    @property
    def _running(self) -> RunningFit:
        """The `fit` that calls."""
        if self._fit is None:
            raise RuntimeError("BackupAndRestore was called outside of Model.fit")
        return self._fit

    def _make_backup(self) -> Backup:
        strategy = self.model.distribute_strategy
        if getattr(strategy, "rank", 0) == 0:
            remove_left_over(self._path)
        progress = strategy.progress_of_fit() if isinstance(strategy, WorkerStrategy) else None
        if progress is not None:
            return ServerBackup(self._path, self.model, progress)
        return GroupBackup(self._path, self.model, self._strategy)

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
        if not fit.can_begin_elsewhere:
            raise OptionsError(
                "BackupAndRestore needs Keras 3.7 or newer, tf_keras, or Keras 2.15: `fit` of Keras 3.3 to 3.6 cannot start "
                'exactly in the middle of an epoch. Install a newer Keras: pip install "keras>=3.7"'
            )
        return fit

    def _save(self, metrics: Dict[str, Variable]) -> None:
        remembered, weights = callback_states.snapshot(self._running.callbacks)
        facts = {
            "epoch": self._epoch,
            "batches": self._batches,
            "stopped": self._stopped,
            "place": self._running.place(self._batches),
            "callbacks": remembered,
        }
        self._backup.save(Checkpoint(facts, weights), metrics)
        self._saved = True

    def _restore(self) -> None:
        found = self._backup.restore()
        if found is None:
            return
        facts, arrays = found
        callback_states.restore(self._running.callbacks, facts["callbacks"], arrays)
        self._epoch, self._batches = facts["epoch"], facts["batches"]
        kept = lasting(facts["variables"])
        sums = {name: fact for name, fact in facts["variables"].items() if name not in kept}
        if sums:
            self._metrics_to_come = Checkpoint(sums, arrays)
        if facts["stopped"]:
            self._running.end_now()
        else:
            self._running.go_to(self._epoch, self._batches, facts["place"])

    def _add_metrics_to_come(self) -> None:
        """Adds the saved sums to metrics that Keras 2 makes in its first step, and that have counted only this step."""
        if self._metrics_to_come is None:
            return
        waiting, self._metrics_to_come = self._metrics_to_come, None
        present = metric_variables(self.model)
        group_state.check(waiting, present, str(self._path))
        group_state.add(self._strategy, waiting, present)
