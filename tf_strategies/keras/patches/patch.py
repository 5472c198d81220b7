"""Defines a patch: a name of Keras that the bridge replaces; and a read: a private name that it uses.

The owner is the place of a name: "Model" is a class of the package, "src.losses.loss" one of its modules,
and "src.engine.data_adapter:DataHandler" a class of a module. `since` and `until` are versions of Keras;
tf_keras has those of TensorFlow, and counts as Keras 2.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Callable, NamedTuple

from tf_strategies.keras.types import Replaced
from tf_strategies.keras.versions import number

__all__ = ["FIRST", "KERAS3", "NONE", "Patch", "Read", "applies", "find_owner"]

FIRST, KERAS3, NONE = "2.0", "3.0", "99.0"


class Patch(NamedTuple):
    """A name of Keras that the bridge replaces.

    Attributes:
        owner: the module or class that has the name. name: the name. ours: returns the replacement, given the
            original and the package.
        reason: the reason why the name is replaced.
        since: the first version of Keras to which the patch applies.
        until: the first later version to which it does not apply.
    """

    owner: str
    name: str
    ours: Callable[[Replaced, ModuleType], Replaced]
    reason: str
    since: str = FIRST
    until: str = NONE


class Read(NamedTuple):
    """A private name that is read or set on objects of Keras.

    Attributes:
        owner: where the name is; "" for a name that several classes have.
        name: the name.
        reason: the purpose of the name.
        since: the first version of Keras in which the name is read.
        until: the first later version in which it is not read.
    """

    owner: str
    name: str
    reason: str
    since: str = FIRST
    until: str = NONE


def find_owner(package: ModuleType, owner: str) -> Replaced:
    """Returns the module or class that `owner` names in a package.

    Raises:
        AttributeError, ImportError: there is no such module or class.
    """
    path, _, inner = owner.partition(":")
    if path.startswith("src."):
        found: Any = importlib.import_module(f"{package.__name__}.{path}")
        path = inner
    else:
        found = package
    for name in filter(None, path.split(".")):
        found = getattr(found, name)
    return found


def applies(entry: Patch | Read, version: str) -> bool:
    """Returns whether a patch or a read applies to a version of Keras."""
    return number(entry.since) <= number(version) < number(entry.until)
