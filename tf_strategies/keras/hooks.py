"""Defines a base class of callbacks that works in every Keras."""

from __future__ import annotations

from typing import Any

from tf_strategies.keras.types import Model
from tf_strategies.types import Kwargs

__all__ = ["Hooks"]


def _nothing(self: Hooks, *args: Any, **kwargs: Any) -> None:
    del self, args, kwargs


class Hooks:
    """Provides the methods of `keras.callbacks.Callback` without a dependency on one version of Keras.

    A process may have loaded two.

    Attributes:
        model: the model that is trained.
        params: the arguments of `fit`: epochs, steps, verbose.
    """

    async_safe = False
    _supports_tf_logs = True

    def __init__(self) -> None:
        self.model: Model = None  # type: ignore[assignment]  # until `set_model`
        self.params: Kwargs = {}

    def set_params(self, params: Kwargs) -> None:
        self.params = params

    def set_model(self, model: Model) -> None:
        self.model = model

    on_train_begin = on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _nothing
    on_epoch_begin = on_epoch_end = on_batch_begin = on_batch_end = _nothing
    on_train_batch_begin = on_train_batch_end = on_test_batch_begin = on_test_batch_end = _nothing
    on_predict_batch_begin = on_predict_batch_end = _nothing

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False
