"""Lets one worker alone save a model or load its weights, also within the scope of its strategy.

Keras 3 makes a temporary optimizer for this, to compare its configuration.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from tf_strategies.keras.types import Model
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Result

__all__ = ["alone"]


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
