"""Takes a step of `fit` before a newcomer joins the others, so that its functions are traced when they train together."""

from __future__ import annotations

import logging
from typing import Callable, ContextManager, Optional

from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.hooks import Hooks
from tf_strategies.texts import described
from tf_strategies.types import Result

__all__ = ["rehearse"]

_log = logging.getLogger("tf_strategies")

_WHY_LENGTH = 300


class _Ended(Exception):  # noqa: N818  # ends a `fit` that has done what it should
    pass


class _EndsAfterAStep(Hooks):
    """Ends `fit` after one step of training, and one of validation if there is validation after the first epoch."""

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        del batch, logs
        self.model.stop_training = True  # Keras validates all the same

    def on_test_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        raise _Ended

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        raise _Ended

    def _implements_test_batch_hooks(self) -> bool:
        return True


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
