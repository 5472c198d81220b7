"""The patch table: lists every name of Keras that the bridge replaces, and every private name that it reads."""

from __future__ import annotations

from typing import Iterator, Tuple

from tf_strategies.keras.patches.data import DATA
from tf_strategies.keras.patches.gradients import GRADIENTS, OF_TENSORFLOW
from tf_strategies.keras.patches.losses import LOSSES
from tf_strategies.keras.patches.patch import Patch, Read, applies, find_owner
from tf_strategies.keras.patches.reads import READS
from tf_strategies.keras.patches.training import TRAINING
from tf_strategies.keras.patches.variables import VARIABLES

__all__ = ["OF_TENSORFLOW", "PATCHES", "READS", "Patch", "Read", "find_owner", "patches_of", "reads_of"]

PATCHES: Tuple[Patch, ...] = (*TRAINING, *LOSSES, *GRADIENTS, *VARIABLES, *DATA)


def patches_of(version: str) -> Iterator[Patch]:
    """Yields the patches that apply to a Keras.

    Args:
        version: its `__version__`.
    """
    yield from (each for each in PATCHES if applies(each, version))


def reads_of(version: str) -> Iterator[Read]:
    """Yields the private names that are read in a Keras."""
    yield from (each for each in READS if applies(each, version))
