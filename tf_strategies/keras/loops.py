"""Strategies are told when Keras trains, and when it only looks; and they call its steps."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["install"]


def install(keras: ModuleType) -> None:
    """Wraps `fit`, `evaluate` and `predict`, and what makes the functions that run their steps."""
    keras.Model.fit = _within(keras.Model.fit, "training")
    keras.Model.evaluate = _within(keras.Model.evaluate, "whole_data")
    keras.Model.predict = _within(keras.Model.predict, "whole_data")
    for mode in ("train", "test", "predict"):
        maker = f"make_{mode}_function"
        setattr(keras.Model, maker, _called_by_strategy(getattr(keras.Model, maker), f"{mode}_function"))


def _within(original: Callable, context: str) -> Callable:
    @functools.wraps(original)
    def loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.distribute_strategy
        if not isinstance(strategy, WorkerStrategy):
            return original(self, *args, **kwargs)
        with getattr(strategy, context)():
            return original(self, *args, **kwargs)

    return loop


def _called_by_strategy(original: Callable, name: str) -> Callable:
    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        function, strategy = getattr(self, name), self.distribute_strategy
        if isinstance(strategy, WorkerStrategy) and not getattr(function, "called_by_strategy", False):
            function = _by(strategy, function)
            setattr(self, name, function)
        return made if made is None else function

    return make


def _by(strategy: WorkerStrategy, function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return strategy.call(function, *args)

    call.called_by_strategy = True  # type: ignore[attr-defined]
    return call
