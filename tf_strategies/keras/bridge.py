"""Installs the bridge in every Keras that is loaded, once in each."""

from __future__ import annotations

from typing import Set

import tensorflow as tf

from tf_strategies.keras.installation import install_all
from tf_strategies.keras.loaded import loaded_kerases
from tf_strategies.keras.patches import OF_TENSORFLOW, patches_of
from tf_strategies.keras.versions import check_versions, remedy

__all__ = ["install"]

_installed: Set[str] = set()


def install() -> None:
    """Teaches the Kerases that are loaded by now. Cheap when there is nothing new; others follow when they are used.

    Raises:
        ImportError: a Keras is too old, or its insides are not what the bridge knows. Nothing of it is changed then.
    """
    if "tensorflow" not in _installed:
        install_all(tf, OF_TENSORFLOW)
        _installed.add("tensorflow")
    for name, keras in loaded_kerases():
        if name in _installed:
            continue
        check_versions(name, keras.__version__, tf.__version__)
        try:
            install_all(keras, patches_of(keras.__version__))
        except (AttributeError, ImportError) as error:
            raise ImportError(
                f"tf_strategies does not know how to train {name} {keras.__version__} on several replicas: {error}. "
                f"{remedy(name)}"
            ) from error
        _installed.add(name)
