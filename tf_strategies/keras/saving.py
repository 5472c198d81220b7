"""One worker alone can save a model, also within the scope of its strategy.

While it saves, Keras 3 makes an optimizer anew, to see what it is made of; its variables are thrown away.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tf_strategies.keras.group_strategy import group_of

__all__ = ["install"]


def install(keras: ModuleType) -> None:
    """Wraps `keras.Model.save`."""
    original = keras.Model.save

    @functools.wraps(original)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = group_of(self)
        if strategy is None:
            return original(self, *args, **kwargs)
        with strategy.alone():
            return original(self, *args, **kwargs)

    keras.Model.save = save
