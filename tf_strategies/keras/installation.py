"""Installs patches: all of them or none."""

from __future__ import annotations

from types import ModuleType
from typing import Iterable, List, Tuple

from tf_strategies.keras.patches import Patch, find_owner
from tf_strategies.keras.types import Replaced

__all__ = ["install_all"]

_ABSENT = object()


def install_all(package: ModuleType, patches: Iterable[Patch]) -> None:
    """Replaces the names of the patches in a package. If one cannot be replaced, none is changed.

    Args:
        package: the package with the owners of the patches.
        patches: the patches, at most one for each name.

    Raises:
        AttributeError, ImportError: a name is missing; the message names it.
    """
    ready: List[Tuple[Replaced, str, Replaced]] = []
    for patch in patches:
        owner = find_owner(package, patch.owner)
        ready.append((owner, patch.name, patch.ours(getattr(owner, patch.name), package)))
    done: List[Tuple[Replaced, str, Replaced]] = []
    try:
        for owner, name, replacement in ready:
            before = vars(owner).get(name, _ABSENT)
            setattr(owner, name, replacement)
            done.append((owner, name, before))
    except BaseException:
        for owner, name, before in reversed(done):
            if before is not _ABSENT:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
        raise
