"""`BackupAndRestore`: resumes training that was killed, as if it had not been interrupted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple, Union

import tensorflow as tf

from tf_strategies.callbacks.backup import Backup
from tf_strategies.callbacks.group_backup import GroupBackup
from tf_strategies.callbacks.preemption import Preemption
from tf_strategies.callbacks.resuming import Resuming
from tf_strategies.callbacks.server_backup import ServerBackup
from tf_strategies.callbacks.termination import EXIT_STATUS, Termination
from tf_strategies.errors import BootstrapError, OptionsError
from tf_strategies.keras import bridge
from tf_strategies.keras.atomic_files import remove_left_over
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.running_fit import RunningFit
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["BackupAndRestore", "BackupFile"]

_FILE = "training.checkpoint"
_log = logging.getLogger("tf_strategies")


class BackupFile(NamedTuple):
    """Says where a backup is, and when it is made.

    Attributes:
        path: the file.
        save_freq: "epoch", or the number of batches between two saves.
        deletes: whether it is deleted when `fit` ends without an error.
        needs_sigterm: whether it must be saved after SIGTERM.
    """

    path: Path
    save_freq: Union[str, int]
    deletes: bool
    needs_sigterm: bool


class BackupAndRestore(Resuming):
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

    With `save_before_preemption=True` a SIGTERM, by which schedulers announce that they take a machine away, does not end the
    process at once. All workers save after the same batch, which is the next one, and end with status 143, whichever of them
    has received the signal. It takes effect after validation if that runs, and ends the process as usual outside of `fit`.

    In a `fit` with `elastic=`, workers that are left train on from memory, and a worker that comes back takes over the state of
    the others. The file is for the loss of all workers: it is read if no worker has taken a step of the `fit`. The farthest file
    counts if several workers have one. Whoever is the chief writes it. SIGTERM makes a worker leave. If fewer than `min_workers`
    are left, all save first, whatever `save_before_preemption` says.

    These are not exact: Python generators, PyDatasets and Sequences, which may be read ahead; Dropout in Keras 2 without
    `enable_tf_random_generator()`, which hides its state; states of your own callbacks; a dataset that shuffles within
    `repeat(n)` without `steps_per_epoch`; with parameter servers, a dataset of unknown length, saved after the last batch of an
    epoch but before its end, whose logs are lost (in Keras 2, `fit` ends with an error: begin again). Otherwise the backup of a
    dataset of unknown length is written one batch later. With `steps_per_execution`, the last digit of the logs can differ in an
    epoch that was interrupted.

    Args:
        directory: where the chief keeps `training.checkpoint`. It need not be shared. It is created if it does not exist.
        save_freq: "epoch", or the number of batches between two saves. With `steps_per_execution`, it saves at the end of the
            next execution.
        delete_checkpoint: whether the file is removed when `fit` ends without an error.
        save_before_preemption: whether SIGTERM makes all workers save and end. Not with parameter servers, which would end first.
            With `elastic=` it raises an error if SIGTERM would end the process at once.

    Raises:
        OptionsError: an argument has a value that is not allowed, or Keras is older than 3.7. From `fit`:
            `save_before_preemption=True` with parameter servers, outside of the main thread, or with `elastic=` and data that
            cannot be read again.
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
        save_before_preemption: bool = False,
    ) -> None:
        if not str(directory):
            raise OptionsError("directory must be the path of a folder; got an empty one")
        if save_freq != "epoch" and (
            isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1
        ):
            raise OptionsError(
                f'save_freq must be "epoch" or a number of batches, at least 1; got {save_freq!r}'
            )
        self._path = Path(directory) / _FILE
        self._file = BackupFile(self._path, save_freq, delete_checkpoint, save_before_preemption)
        self._saves_before_preemption = save_before_preemption
        super().__init__("BackupAndRestore", str(self._path), save_freq, delete=delete_checkpoint)
        bridge.install()  # without a strategy, nothing else has installed the bridge

    @property
    def file(self) -> BackupFile:
        """The file, and what the user has said of it."""
        return self._file

    def make_backup(self) -> Backup:
        strategy = self.model.distribute_strategy
        if getattr(strategy, "rank", 0) == 0:
            remove_left_over(self._path)
        progress = strategy.progress_of_fit() if isinstance(strategy, WorkerStrategy) else None
        contexts, self._termination = self.running.contexts, Termination()
        self._preemption = contexts.enter_context(Preemption(self.strategy, self._termination))
        if self._saves_before_preemption:
            if not Termination.can_open():
                raise OptionsError(
                    "save_before_preemption=True needs a fit in the main thread, which alone can receive signals; call fit "
                    "there, or leave the argument out"
                )
            contexts.enter_context(self._termination)
        self._ends_alone = progress is not None
        if progress is not None:
            if self._saves_before_preemption:
                raise OptionsError(
                    "save_before_preemption=True does not work with parameter servers, which SIGTERM ends first; use "
                    "save_freq=N to save every N batches"
                )
            return ServerBackup(self._path, self.model, progress)
        return GroupBackup(self._path, self.model, self.strategy)

    def leaves_here(self) -> bool:
        return self._preemption.stops_here()

    def leaves_at_end(self) -> bool:
        """Asks all workers, since none that has passed the last place may delete what another one needs."""
        if self._ends_alone:
            return False
        return bool(self._preemption.asked(self._termination.requested))

    def leave(self, place: str) -> None:
        strategy = self.strategy
        where = f"in {self._path}" if strategy is None or strategy.rank == 0 else f"by {strategy.name_of(0)}"
        _log.warning(
            "SIGTERM asked %s to end. All workers end now. Training is saved at %s, %s; start the script again to go on",
            self._who(),
            place,
            where,
        )
        raise SystemExit(EXIT_STATUS)

    def _who(self) -> str:
        """Returns in words who was asked to end. A collective."""
        try:
            return self._preemption.names_of(self._preemption.asked(self._termination.requested))
        except (tf.errors.OpError, BootstrapError):  # others have ended already
            return "a worker"

    def find_fit(self) -> RunningFit:
        strategy = self.model.distribute_strategy
        if group_of(self.model) is None and strategy.extended._in_multi_worker_mode():
            raise OptionsError(
                f"BackupAndRestore cannot save for the workers of {type(strategy).__name__}; use a strategy of tf_strategies, or "
                "Keras's own BackupAndRestore"
            )
        return super().find_fit()
