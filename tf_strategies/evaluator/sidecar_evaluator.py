"""`SidecarEvaluator`: evaluates checkpoints as training writes them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

import tensorflow as tf
from absl import logging

from tf_strategies.callbacks.checkpoint_file import CheckpointError
from tf_strategies.cluster import Cluster
from tf_strategies.errors import OptionsError
from tf_strategies.evaluator.checkpoint_folder import CheckpointFolder, Found
from tf_strategies.evaluator.loading import NotWholeError, load
from tf_strategies.evaluator.servers_watch import ServersWatch
from tf_strategies.keras.fit_types import Callback, Data
from tf_strategies.keras.model_state import is_compiled
from tf_strategies.keras.types import Model
from tf_strategies.options import whole_number

__all__ = ["Evaluation", "SidecarEvaluator"]

_POLL_SECONDS = 0.5
_WHOLE_WITHIN_SECONDS = 30.0


class Evaluation(NamedTuple):
    """Holds the result of one evaluation.

    Attributes:
        path: the checkpoint.
        step: the number of steps of training. If the checkpoint does not have it, the last number in its name; without such
            a number, how many evaluations there were before.
        logs: the loss and the metrics, by name.
    """

    path: Path
    step: int
    logs: Dict[str, float]


class SidecarEvaluator:
    """Evaluates the checkpoints that appear in a folder, in a process of its own.

    The process is the task "evaluator" of TF_CONFIG, or any other. It reads `training.checkpoint` of
    `tfs.callbacks.BackupAndRestore`, the files of ModelCheckpoint (`.keras`, `.weights.h5`, `.h5`, and TensorFlow's format),
    and those of `tf.train.Checkpoint`. Each is evaluated once, as soon as it is complete. If several have appeared, only the
    newest is. After each evaluation it prints a line, and writes the scalars `evaluation/<name>` for TensorBoard, over steps.

    Attributes:
        evaluations: the evaluations so far, in order.

    Args:
        model: the model that is trained, built and compiled; in the scope of a strategy, or not.
        data: the data as `model.evaluate` takes them: a dataset, or a tuple of arrays (x, y).
        checkpoint_dir: the folder. It may appear later. This process must be able to read the trainer's disk.
        steps: as for `model.evaluate`. None means all data.
        max_evaluations: the number of evaluations after which `start` returns; None: no limit.
        callbacks: as for `model.evaluate`.
        log_dir: the folder for TensorBoard; None: the folder `evaluator` in `checkpoint_dir`.
        idle_timeout: the seconds without a new checkpoint after which `start` returns; None: no limit.

    Raises:
        OptionsError: an argument has a value that is not allowed.
        ClusterConfigError: TF_CONFIG is wrong.

    Example:
        >>> evaluator = tfs.SidecarEvaluator(model, test_dataset, "checkpoints", idle_timeout=600)
        >>> evaluator.start()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Model,
        data: Data,
        checkpoint_dir: Union[str, Path],
        steps: Optional[int] = None,
        max_evaluations: Optional[int] = None,
        callbacks: Optional[Sequence[Callback]] = None,
        *,
        log_dir: Union[str, Path, None] = None,
        idle_timeout: Optional[float] = 3600.0,
    ) -> None:
        if not str(checkpoint_dir or ""):
            raise OptionsError(f"checkpoint_dir must be the path of a folder; got {checkpoint_dir!r}")
        folder = Path(checkpoint_dir)
        if folder.exists() and not folder.is_dir():
            raise OptionsError(f"checkpoint_dir must be the path of a folder; {folder} is a file")
        if not (is_compiled(model) and model.built):
            raise OptionsError(
                f"model {model.name!r} cannot be evaluated: give it a keras.layers.Input or call model.build(...), and compile "
                "it as the one that is trained"
            )
        for name, value in (("steps", steps), ("max_evaluations", max_evaluations)):
            if value is not None and (whole_number(value) or 0) < 1:
                raise OptionsError(f"{name} must be None or a whole number, at least 1; got {value!r}")
        if idle_timeout is not None and not idle_timeout > 0:
            raise OptionsError(f"idle_timeout must be None or seconds above 0; got {idle_timeout!r}")
        self.evaluations: List[Evaluation] = []
        self._model = model
        self._data = data
        self._path = folder
        self._steps = steps
        self._max = max_evaluations
        self._callbacks = list(callbacks or [])
        self._log_dir = Path(log_dir) if log_dir else folder / "evaluator"
        self._idle_timeout = float("inf") if idle_timeout is None else idle_timeout
        self._folder = CheckpointFolder(folder)
        cluster = Cluster.from_tf_config()
        self._servers = ServersWatch(cluster.addresses.get("ps", ()) if cluster else ())

    def start(self) -> Dict[str, float]:
        """Evaluates until training has ended.

        Training has ended after `max_evaluations`, when the parameter servers of TF_CONFIG have ended, or when there was no
        new checkpoint for `idle_timeout` seconds. The last checkpoint is evaluated before.

        Returns:
            The loss and the metrics of the last evaluation, by name.

        Raises:
            CheckpointError: a checkpoint belongs to another model, or could not be read for 30 seconds; or there was none.
        """
        writer = tf.summary.create_file_writer(str(self._log_dir))
        try:
            why = self._follow(writer)
        finally:
            writer.close()
        if not self.evaluations:
            raise CheckpointError(
                f"no checkpoint was written to {self._path.absolute()}, and {why}; let the training write there, with "
                "tfs.callbacks.BackupAndRestore or keras.callbacks.ModelCheckpoint"
            )
        logging.info("SidecarEvaluator ends: %s", why)
        return self.evaluations[-1].logs

    def _follow(self, writer: tf.summary.SummaryWriter) -> str:
        """Evaluates new checkpoints until training has ended. Returns the reason for the end."""
        last_new = time.monotonic()
        unread: Dict[Found, float] = {}
        while True:
            # This check comes first, so that a checkpoint that was written before the servers ended is found
            # below.
            are_gone = self._servers.are_gone()
            found = self._folder.newest()
            if found is not None and self._evaluated(found, unread, writer):
                last_new = time.monotonic()
                if self._max is not None and len(self.evaluations) >= self._max:
                    return f"it has made {self._max} evaluations"
                continue
            if found is None and are_gone:
                return "the parameter servers have ended"
            if found is None and time.monotonic() - last_new > self._idle_timeout:
                return f"there was no new checkpoint for {self._idle_timeout:g} s"
            time.sleep(_POLL_SECONDS)

    def _evaluated(self, found: Found, unread: Dict[Found, float], writer: tf.summary.SummaryWriter) -> bool:
        start = time.monotonic()
        try:
            step = load(self._model, found)
        except NotWholeError as error:
            if start - unread.setdefault(found, start) > _WHOLE_WITHIN_SECONDS:
                raise CheckpointError(
                    f"checkpoint {found.path} could not be read for {_WHOLE_WITHIN_SECONDS:g} s: {error}; remove it, and start "
                    "the evaluator again"
                ) from error
            return False
        self._folder.done_with(found)
        if step is None:
            numbers = re.findall(r"\d+", found.path.name.partition(".weights")[0])
            step = int(numbers[-1]) if numbers else len(self.evaluations) + 1
        logs = self._evaluate()
        self.evaluations.append(Evaluation(found.path, step, logs))
        with writer.as_default(step=step):
            for name, value in logs.items():
                tf.summary.scalar(f"evaluation/{name}", value)
        writer.flush()
        results = ", ".join(f"{name} {value:.6g}" for name, value in logs.items())
        seconds = time.monotonic() - start
        print(f"evaluated {found.path.name} of step {step}: {results} ({seconds:.1f} s)", flush=True)
        return True

    def _evaluate(self) -> Dict[str, float]:
        data = self._data if isinstance(self._data, tuple) else (self._data,)
        logs = self._model.evaluate(
            *data, steps=self._steps, callbacks=self._callbacks, verbose=0, return_dict=True
        )
        return {name: float(value) for name, value in logs.items()}
