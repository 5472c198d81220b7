"""Takes a step of `fit` before a newcomer joins the others, so that its functions are traced when they train together."""

from __future__ import annotations

import logging
from typing import Callable, ContextManager, Optional, Sequence

from tf_strategies.keras.fit_types import Callback, Logs
from tf_strategies.keras.hooks import Hooks
from tf_strategies.keras.loaded import classes_of
from tf_strategies.texts import described
from tf_strategies.types import Result

__all__ = ["may_change_functions", "rehearse"]

_log = logging.getLogger("tf_strategies")

_WHY_LENGTH = 300
_BEFORE_THE_FIRST_STEP = (
    "set_model",
    "set_params",
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_batch_begin",
)
_LIBRARIES = ("keras", "tf_keras", "tensorflow", "tf_strategies")


class _Ended(Exception):  # noqa: N818  # ends a `fit` that has done what it should
    pass


class _EndsAfterAStep(Hooks):
    """Ends `fit` after its first step."""

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        raise _Ended


def may_change_functions(callbacks: Sequence[Callback]) -> bool:
    """Returns True if a callback runs code of the user before the first step: it may set what a function then reads in tracing.

    TensorBoard does so, too, if it is the writer of summaries in a step.
    """
    writers = classes_of("callbacks", "TensorBoard")
    return any(
        _has_own_code(each) or (isinstance(each, writers) and vars(each).get("update_freq") != "epoch")
        for each in callbacks
    )


def _has_own_code(callback: Callback) -> bool:
    return any(
        name in vars(callback)
        or any(name in vars(each) and not _is_of_library(each) for each in type(callback).__mro__)
        for name in _BEFORE_THE_FIRST_STEP
    )


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


def rehearse(alone: ContextManager[None], fit: Callable[..., Result], name: str) -> bool:
    """Takes a step. What it changes of the model is what the state of the others replaces.

    Args:
        alone: the context in which this worker takes part in collectives by itself.
        fit: calls `Model.fit` with the arguments of the user, but for those that it is given.
        name: the name of this worker.

    Returns:
        True if it has taken a step. An error is logged: it comes again when this worker takes steps with the others.
    """
    try:
        with alone:
            fit(callbacks=[_EndsAfterAStep()], verbose=0)
    except _Ended:
        return True
    except Exception as error:
        why = described(error, _WHY_LENGTH)
        _log.warning("%s joins the others without a step of its own before: %s", name, why)
    return False
