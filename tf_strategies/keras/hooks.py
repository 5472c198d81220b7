"""Defines a base class of callbacks that works in every Keras."""

from __future__ import annotations

from typing import Any, Dict

__all__ = ["Hooks"]


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
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
        self.model: Any = None
        self.params: Dict[str, Any] = {}

    def set_params(self, params: Dict[str, Any]) -> None:
        self.params = params

    def set_model(self, model: Any) -> None:
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
