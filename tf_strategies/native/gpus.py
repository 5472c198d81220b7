"""Switches on the kernels of GPUs: all-reduce staged through pinned memory, and compression.

They need the library that setup.py builds where there is nvcc. It serves every TensorFlow.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

from absl import logging

from tf_strategies.native import c_text, loader

__all__ = ["use_gpus"]

LIBRARY = loader.LIBRARIES / "cuda" / "libtf_strategies_cuda.so"
SWITCH = "TF_STRATEGIES_CUDA"


@functools.cache
def use_gpus() -> bool:
    """Returns whether operations of this package run on GPUs, and registers their kernels on the first call.

    It returns False where TensorFlow lists no GPU, where TF_STRATEGIES_CUDA is 0, and, after a warning, where the library is
    missing or too new for the driver. TensorFlow then copies gradients to the host and back.
    """
    tf = loader.require_tensorflow()
    if os.environ.get(SWITCH) == "0" or not tf.config.list_physical_devices("GPU"):
        return False
    reason = (
        why_not_built(str(loader.build_info().get("cuda", "none: that build is older")))
        or load(LIBRARY)
        or _why_unusable()
    )
    if reason:
        logging.warning(
            "tf_strategies: TensorFlow copies the gradients of GPUs to the host, which is slower, and they are compressed there: "
            "%s. docs/gpus.md says how to build the code for GPUs.",
            reason,
        )
        return False
    register_kernels()
    return True


def why_not_built(record: str) -> str:
    """Returns the reason why the build has left out the code for GPUs, or "".

    Args:
        record: what the build has recorded: "CUDA 13.0", or "none: " and the reason. A library of another build may be there.
    """
    before, _, reason = record.partition("none: ")
    return "" if before else f"tf_strategies was built without it, because {reason}"


def load(path: Path) -> str:
    """Loads the library, which needs no GPU. Returns the reason if this fails, or ""."""
    if not path.exists():
        return f"{path} is missing"
    return _reason(loader.core().tfs_cuda_load(os.fsencode(path)))


def register_kernels() -> None:
    """Registers the kernels for GPUs with TensorFlow. The library must have been loaded."""
    loader.core().tfs_cuda_register_kernels()


def _why_unusable() -> str:
    return _reason(loader.core().tfs_cuda_check())


def _reason(code: int) -> str:
    core = loader.core()
    core.tfs_last_error.restype = ctypes.c_int64
    return (c_text.read(core.tfs_last_error) or b"").decode(errors="replace") if code else ""
