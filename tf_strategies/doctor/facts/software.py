"""Finds the versions of what must agree between tasks, without importing it."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Dict

from tf_strategies._version import __version__

__all__ = ["versions"]

# A package is installed under one of these names.
_PACKAGES = {
    "tensorflow": (
        "tensorflow",
        "tensorflow-cpu",
        "tf-nightly",
        "tf-nightly-cpu",
        "intel-tensorflow",
        "tensorflow-rocm",
    ),
    "keras": ("keras", "keras-nightly"),
    "tf_keras": ("tf-keras", "tf-keras-nightly"),
    "numpy": ("numpy",),
    "grpcio": ("grpcio",),
}


def versions() -> Dict[str, str]:
    """Returns package -> version, with Python's and this package's; "" for one that is not installed."""
    found = {"python": platform.python_version(), "tf_strategies": __version__}
    for package, names in _PACKAGES.items():
        found[package] = next(filter(None, map(_version, names)), "")
    return found


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
