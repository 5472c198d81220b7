"""`model.stop_training` of one worker stops `fit` on all of them, after the same batch."""

from __future__ import annotations

import functools
from typing import Any, Callable

from tf_strategies.keras.group_strategy import group_of

__all__ = ["agree_after_callbacks", "agree_to_stop"]


def agree_to_stop(model: Any) -> None:
    """Makes `model.stop_training` equal on all workers. They call it at the same places of `fit`.

    A worker that has gone on to the next place already cannot stop here, so all stop there.
    """
    strategy = group_of(model)
    if strategy is None:
        return
    wanted = bool(model.stop_training)
    stops = strategy.stops_training(wanted)
    if stops != wanted:
        model.stop_training = stops


def agree_after_callbacks(callbacks: Any, model: Any) -> None:
    """Lets a CallbackList of any Keras agree once its callbacks have seen the end of a training batch or of an epoch."""
    for name in ("on_train_batch_end", "on_epoch_end"):
        setattr(callbacks, name, _then_agree(getattr(callbacks, name), model))


def _then_agree(call: Callable, model: Any) -> Callable:
    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> None:
        call(*args, **kwargs)
        agree_to_stop(model)

    return called
