"""Installs the bridge in every loaded Keras, once in each."""

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
    """Installs the bridge in the Kerases that are loaded by now.

    Repeated calls are cheap, and include a Keras that was loaded later.

    Raises:
        ImportError: a Keras is too old, or the bridge does not fit its implementation. It is then not
            changed.
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
