"""Makes a ModelCheckpoint decide without writing, on workers that may become the chief."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from tf_strategies.keras.fit_types import ModelCheckpoint
from tf_strategies.keras.types import Model

__all__ = ["write_again", "write_nothing"]

_MARK = "_tf_strategies_writes_nothing"


def write_nothing(callback: ModelCheckpoint) -> None:
    """Makes a ModelCheckpoint of any Keras keep its best value and its counters, and write and print nothing."""
    if hasattr(vars(callback).get("_save_model"), _MARK):
        return
    vars(callback).pop("_save_model", None)
    save = callback._save_model
    model_attribute = "_model" if hasattr(type(callback), "model") else "model"
    folder = tempfile.mkdtemp(prefix="tf_strategies-")  # Keras makes the folder of the file before it writes.
    weakref.finalize(callback, shutil.rmtree, folder, ignore_errors=True)

    @functools.wraps(save)
    def save_model(*args: Any, **kwargs: Any) -> object:
        model, path, verbose = getattr(callback, model_attribute), callback.filepath, callback.verbose
        setattr(callback, model_attribute, _Unwritten(model))
        callback.filepath, callback.verbose = str(Path(folder, Path(path).name)), 0
        try:
            return save(*args, **kwargs)
        finally:
            setattr(callback, model_attribute, model)
            callback.filepath, callback.verbose = path, verbose

    setattr(save_model, _MARK, True)
    callback._save_model = save_model


def write_again(callback: ModelCheckpoint) -> None:
    """Ends the effect of `write_nothing`."""
    if hasattr(vars(callback).get("_save_model"), _MARK):
        del callback._save_model


class _Unwritten:
    """A model for ModelCheckpoint that is not saved."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, *args: object, **kwargs: object) -> None:
        """Saves nothing."""

    def save_weights(self, *args: object, **kwargs: object) -> None:
        """Saves nothing."""
