"""Finds and loads the shared library that holds the core and the TensorFlow operations.

A library works only with the TensorFlow that it was built for, because TensorFlow's C++ interface changes
with every release. So it is in a folder with the name of that version, `lib/tf-2.15.1/`, together with a
record of how it was built.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from pathlib import Path
from types import ModuleType

from tf_strategies.errors import BuildMismatchError
from tf_strategies.types import JsonObject

LIBRARIES = Path(__file__).resolve().parent / "lib"
NAME = "libtf_strategies_ops.so"


@functools.cache
def library() -> ModuleType:
    """Returns the module with one function for each operation, loading the library on the first call.

    Raises:
        BuildMismatchError: no library was built for the running TensorFlow, or it does not load.
    """
    tf = require_tensorflow()
    path = find_library(tf.__version__, tf.version.GIT_VERSION)
    _load_ucx()
    try:
        return tf.load_op_library(str(path))
    except (tf.errors.OpError, OSError) as error:
        raise BuildMismatchError(
            f"{path} does not load into TensorFlow {tf.__version__}: {error}. {_remedy(tf.__version__)}"
        ) from error


@functools.cache
def core() -> ctypes.CDLL:
    """Returns the C functions of the same library; see ops/communicator/c_api.h.

    Raises:
        BuildMismatchError: as `library`.
    """
    library()
    tf = require_tensorflow()
    return ctypes.CDLL(str(find_library(tf.__version__, tf.version.GIT_VERSION)))


def build_info() -> JsonObject:
    """Returns the record of the library in use: TensorFlow, compiler, ABI flags, UCX.

    Raises:
        BuildMismatchError: no library was built for the running TensorFlow.
    """
    tf = require_tensorflow()
    return _read_record(find_library(tf.__version__, tf.version.GIT_VERSION))


def find_library(version: str, git_version: str, libraries: Path = LIBRARIES) -> Path:
    """Returns the path of the library that was built for a TensorFlow.

    Args:
        version: tf.__version__ of the running TensorFlow.
        git_version: tf.version.GIT_VERSION, the commit of this TensorFlow.
        libraries: the folder with one folder for each version.

    Raises:
        BuildMismatchError: there is no library, or its record names another TensorFlow.
    """
    path = libraries / f"tf-{version}" / NAME
    if not path.exists():
        built = sorted(found.parent.name[len("tf-") :] for found in libraries.glob(f"tf-*/{NAME}"))
        what = f"only for TensorFlow {', '.join(built)}" if built else "for no TensorFlow at all"
        raise BuildMismatchError(
            f"this process runs TensorFlow {version}, but the operations of tf_strategies were built {what}. "
            f"{_remedy(version)}"
        )
    record = _read_record(path)
    if (record.get("tensorflow"), record.get("tensorflow_git")) != (version, git_version):
        raise BuildMismatchError(
            f"this process runs TensorFlow {version} ({git_version}), but {path} was built for TensorFlow "
            f"{record.get('tensorflow')} ({record.get('tensorflow_git')}). {_remedy(version)}"
        )
    return path


def require_tensorflow() -> ModuleType:
    """Returns the module `tensorflow`, from the package `tensorflow` or `tensorflow-cpu`.

    Raises:
        BuildMismatchError: TensorFlow is not installed.
    """
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise BuildMismatchError(
            "tf_strategies needs TensorFlow, which is not installed here. Install it, then build the "
            f"operations for it: {sys.executable} -m pip install tensorflow; {_command()}"
        ) from error
    return tf


def _load_ucx() -> None:
    """Loads UCX into the process, so that the library finds it wherever it is installed.

    Its warnings are switched off. They are about outstanding requests of a failed group, which our errors
    explain better.
    """
    os.environ.setdefault("UCX_LOG_LEVEL", "error")
    import libucx

    libucx.load_library()


def _read_record(path: Path) -> JsonObject:
    record = path.with_name("build_info.json")
    try:
        return dict(json.loads(record.read_text()))
    except (OSError, ValueError) as error:
        raise BuildMismatchError(
            f"{record}, the record of how the operations were built, cannot be read: {error}. "
            f"Build them again: {_command()}"
        ) from error


def _remedy(version: str) -> str:
    return f"Build them for {version}: {_command()}"


def _command() -> str:
    install = f"{sys.executable} -m pip install --no-deps"
    checkout = LIBRARIES.parents[2]
    if (checkout / "setup.py").exists():
        return f"{install} -e {checkout}"
    return f"{install} --force-reinstall . (in the source tree of tf_strategies)"
