"""Finds the Kerases that this process has loaded. There may be two."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Iterator, Tuple

__all__ = ["classes_of", "loaded_kerases"]

_NAMES = ("keras", "tf_keras")
_LAST_LOADED = ("Model", "callbacks", "__version__")


def loaded_kerases() -> Iterator[Tuple[str, ModuleType]]:
    """Yields the name and the package of each Keras that is completely loaded."""
    for name in _NAMES:
        package = sys.modules.get(name)
        if package is not None and all(hasattr(package, each) for each in _LAST_LOADED):
            yield name, package


def classes_of(path: str, name: str) -> Tuple[type, ...]:
    """Returns the classes of this name in the loaded Kerases.

    Args:
        path: the path of modules, such as "optimizers.legacy".
        name: the name of the class.
    """
    found = []
    for _, module in loaded_kerases():
        holder: Any = module
        for part in path.split("."):
            holder = getattr(holder, part, None)
        if hasattr(holder, name):
            found.append(getattr(holder, name))
    return tuple(found)
