"""Models that cannot span several workers are refused when `fit` or `evaluate` begins, and not in the middle of a step."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from tf_strategies.errors import OptionsError
from tf_strategies.keras.worker_strategy import workers_of

__all__ = ["install", "refuse_clipping", "refuse_jit", "refuse_stateful_layers"]

_CLIPPINGS = ("clipnorm", "clipvalue", "global_clipnorm")


def install(keras: ModuleType) -> None:
    """Wraps `fit` and `evaluate`, and what `train_on_batch` and `test_on_batch` begin with.

    Not `Model.compile`: when it is not Keras's own, Keras does not compile models that it loads.
    """
    anywhere = (refuse_jit, refuse_stateful_layers)
    for name in ("fit", "make_train_function"):
        setattr(keras.Model, name, _refusing(getattr(keras.Model, name), *anywhere, refuse_clipping))
    for name in ("evaluate", "make_test_function"):
        setattr(keras.Model, name, _refusing(getattr(keras.Model, name), *anywhere))


def _refusing(original: Callable, *refusals: Callable) -> Callable:
    @functools.wraps(original)
    def allowed(self: Any, *args: Any, **kwargs: Any) -> Any:
        for refuse in refusals:
            refuse(self)
        return original(self, *args, **kwargs)

    return allowed


def refuse_jit(model: Any) -> None:
    """Raises an OptionsError if the model spans several workers and was compiled with `jit_compile=True`."""
    strategy = workers_of(model)
    if strategy is not None and getattr(model, "jit_compile", False) is True:
        raise OptionsError(
            f"model.compile(jit_compile=True) cannot be used with {strategy.size} workers: XLA would compile the whole step, and "
            'has no operation that talks to other processes; use jit_compile="auto" (Keras 3) or False, and '
            "@tf.function(jit_compile=True) on functions of your own that only compute"
        )


def refuse_stateful_layers(model: Any) -> None:
    """Raises an OptionsError if the model spans several workers and has recurrent layers with `stateful=True`."""
    strategy = workers_of(model)
    if strategy is None:
        return
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False) is True and hasattr(layer, "cell"):
            raise OptionsError(
                f"layer {layer.name!r} has stateful=True, which cannot be used with {strategy.size} workers: the states belong "
                "to the rows of a batch, and each worker sees other rows; use stateful=False, or one worker"
            )


def refuse_clipping(model: Any) -> None:
    """Raises an OptionsError if the optimizer clips gradients that are added up only after that."""
    strategy = workers_of(model)
    if strategy is None or not strategy.sums_when_applied or strategy.num_replicas_in_sync == 1:
        return
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    for name in _CLIPPINGS:
        if getattr(optimizer, name, None):
            raise OptionsError(
                f"{name}={getattr(optimizer, name)} of optimizer {optimizer.name!r} cannot be used with "
                f"{type(strategy).__name__}: gradients are averaged on the servers, and Keras would clip each worker's before; "
                "use CollectiveAllReduceStrategy, which clips the joint gradient, or clip in a train_step of your own"
            )
