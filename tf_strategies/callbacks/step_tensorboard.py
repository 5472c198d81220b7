"""`StepTensorBoard`: shows the time and the communication of steps in TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Union

import tensorflow as tf

from tf_strategies.callbacks.step_figures import MeasuredStrategy, StepFigures, task_of
from tf_strategies.callbacks.step_watcher import StepWatcher

__all__ = ["StepTensorBoard"]


class StepTensorBoard(StepWatcher):
    """Writes the time and the communication of steps for TensorBoard. Each worker writes its own, so that they can be compared.

    Worker 1 writes to the folder `worker-1` in `log_dir`, which TensorBoard shows as a run. The scalars are means over the steps
    since the last ones: `step/seconds`, `step/communication_seconds`, `step/exposed_seconds`, `step/hidden_share`,
    `step/sent_bytes`, `step/received_bytes` and `step/per_second`. docs/metrics.md says how each is measured. The
    first step of `fit` and the time between epochs do not count.

    Args:
        log_dir: the folder, as for `keras.callbacks.TensorBoard`.
        interval: the shortest time between two writings, in seconds of training.

    Raises:
        OptionsError: `interval` is not above 0; from `fit`, if the strategy of the model is not a CollectiveAllReduceStrategy.

    Example:
        >>> history = model.fit(dataset, epochs=3, verbose=0, callbacks=[tfs.callbacks.StepTensorBoard("logs")])
        >>> import os
        >>> os.listdir("logs")
        ['worker-0']
    """

    def __init__(self, log_dir: Union[str, os.PathLike[str]], *, interval: float = 10.0) -> None:
        super().__init__(interval)
        self._log_dir = Path(log_dir)
        self._writer: Optional[tf.summary.SummaryWriter] = None

    def begin(self, strategy: MeasuredStrategy) -> None:
        """Opens the file of this worker."""
        self.end()  # an earlier `fit` may have ended with an error
        self._writer = tf.summary.create_file_writer(str(self._log_dir / "-".join(task_of(strategy))))

    def report(self, step: int, figures: StepFigures) -> None:
        """Writes the figures."""
        if self._writer is None:
            return
        with self._writer.as_default(step=step):
            tf.summary.scalar("step/seconds", figures.step_seconds)
            tf.summary.scalar("step/communication_seconds", figures.communication_seconds / figures.steps)
            tf.summary.scalar("step/exposed_seconds", figures.exposed_seconds / figures.steps)
            tf.summary.scalar("step/sent_bytes", figures.bytes_sent / figures.steps)
            tf.summary.scalar("step/received_bytes", figures.bytes_received / figures.steps)
            tf.summary.scalar("step/per_second", figures.steps_per_second)
            if figures.hidden_share is not None:
                tf.summary.scalar("step/hidden_share", figures.hidden_share)
        self._writer.flush()

    def end(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
