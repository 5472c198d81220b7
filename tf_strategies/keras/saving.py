"""Lets one worker alone save a model or load its weights, also within the scope of its strategy.

Keras 3 makes a temporary optimizer for this, to compare its configuration.
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any, Callable

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import accumulates_gradients
from tf_strategies.keras.types import Model
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Result

__all__ = ["alone", "save"]

_log = logging.getLogger("tf_strategies")


def save(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Model.save`, which one worker can call alone, and which warns if the file lacks gradients of the others."""
    save_alone = alone(original, keras)

    @functools.wraps(original)
    def call(self: Model, *args: Any, **kwargs: Any) -> Result:
        strategy = self.distribute_strategy
        if isinstance(strategy, GroupStrategy) and strategy.replicas > 1 and accumulates_gradients(self):
            _log.warning(
                "model %r is saved while its optimizer accumulates gradients (gradient_accumulation_steps). The file gets "
                "those of one replica, so the next update of a training that goes on from it will differ. Save after a number of "
                "steps that gradient_accumulation_steps divides, or resume with tfs.callbacks.BackupAndRestore",
                self.name,
            )
        return save_alone(self, *args, **kwargs)

    return call


def alone(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of a model, changed so that variables it makes belong to this worker alone."""
    del keras

    @functools.wraps(original)
    def call(self: Model, *args: Any, **kwargs: Any) -> Result:
        strategy = self.distribute_strategy
        if not isinstance(strategy, WorkerStrategy):
            return original(self, *args, **kwargs)
        with strategy.alone():
            return original(self, *args, **kwargs)

    return call
