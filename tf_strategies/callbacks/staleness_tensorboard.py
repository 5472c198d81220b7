"""`StalenessTensorBoard`: shows the staleness of gradients in TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Union

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.hooks import Hooks

__all__ = ["StalenessTensorBoard"]


class StalenessTensorBoard(Hooks):
    """Writes the staleness of all gradients applied so far for TensorBoard. The chief writes at the end of each epoch.

    The scalars are `staleness/mean` and `staleness/maximum`, the histogram is `staleness/histogram`; all in updates, over
    epochs.

    Args:
        log_dir: the folder, as for `keras.callbacks.TensorBoard`.

    Raises:
        OptionsError: from `fit`, if the strategy of the model is not an AsyncParameterServerStrategy.

    Example:
        >>> with tfs.AsyncParameterServerStrategy().scope():
        ...     model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        >>> history = model.fit(dataset, verbose=0, callbacks=[tfs.callbacks.StalenessTensorBoard("logs")])
    """

    def __init__(self, log_dir: Union[str, os.PathLike[str]]) -> None:
        super().__init__()
        self._log_dir = Path(log_dir, "staleness")
        self._writer: Optional[tf.summary.SummaryWriter] = None

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        strategy = self.model.distribute_strategy
        if not hasattr(strategy, "staleness_stats"):
            raise OptionsError(
                "StalenessTensorBoard needs a model made in the scope of an AsyncParameterServerStrategy; this one has "
                f"{strategy}"
            )
        if strategy.rank == 0:
            self._writer = tf.summary.create_file_writer(str(self._log_dir))

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        if self._writer is None:
            return
        stats = self.model.distribute_strategy.staleness_stats()
        values = [value for value, count in enumerate(stats.histogram) for _ in range(count)]
        with self._writer.as_default(step=epoch):
            tf.summary.scalar("staleness/mean", stats.mean)
            tf.summary.scalar("staleness/maximum", stats.maximum)
            tf.summary.histogram("staleness/histogram", values)

    def on_train_end(self, logs: Optional[Logs] = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
