"""Makes `model.stop_training` of one worker stop `fit` on all workers, after the same batch."""

from __future__ import annotations

import functools
from typing import Any, Callable

from tf_strategies.keras.fit_types import CallbackList
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.types import Model

__all__ = ["agree_after_callbacks", "agree_to_stop"]


def agree_to_stop(model: Model) -> None:
    """Makes `model.stop_training` equal on all workers, which call this at the same points of `fit`.

    If a worker has already passed this point, all workers stop at the next one.
    """
    strategy = group_of(model)
    if strategy is None:
        return
    wanted = bool(model.stop_training)
    stops = strategy.stops_training(wanted)
    if stops != wanted:
        model.stop_training = stops


def agree_after_callbacks(callbacks: CallbackList, model: Model) -> None:
    """Makes a CallbackList of any Keras agree on stopping after the callbacks at the end of a batch or an epoch."""
    for name in ("on_train_batch_end", "on_epoch_end"):
        setattr(callbacks, name, _then_agree(getattr(callbacks, name), model))


def _then_agree(call: Callable[..., None], model: Model) -> Callable[..., None]:
    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> None:
        call(*args, **kwargs)
        agree_to_stop(model)

    return called
