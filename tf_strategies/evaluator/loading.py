"""Loads the weights of a checkpoint of any format into a model, and finds out the step they belong to."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import BinaryIO, Dict, Optional, Union

import h5py
import tensorflow as tf

from tf_strategies.callbacks import group_state
from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError, parse
from tf_strategies.evaluator.checkpoint_folder import Found
from tf_strategies.keras.model_state import training_variables
from tf_strategies.keras.types import Model
from tf_strategies.types import Value

__all__ = ["NotWholeError", "load"]

_ITERATIONS = ("iteration", "iterations", "_iterations", "iter")
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


class NotWholeError(Exception):
    """The checkpoint cannot be read, perhaps because it is still being written."""


def load(model: Model, found: Found) -> Optional[int]:
    """Loads `training.checkpoint` of BackupAndRestore, `.keras`, `.weights.h5`, `.h5`, and TensorFlow's own format.

    Returns:
        The number of training steps, or None if the checkpoint does not contain it.

    Raises:
        NotWholeError: the checkpoint cannot be read, or cannot be read yet.
        CheckpointError: the checkpoint belongs to another model.
    """
    try:
        if found.path.suffix == ".index":
            return _load_tensorflow(model, str(found.path.with_suffix("")))
        with tempfile.TemporaryDirectory(prefix="tf_strategies-") as folder:
            return _load_file(model, _copied(found, Path(folder)), str(found.path))
    except (OSError, EOFError, LookupError, zipfile.BadZipFile, tf.errors.OpError) as error:
        raise NotWholeError(f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        reason = " ".join(str(error).split())[:600]
        raise CheckpointError(
            f"checkpoint {found.path} is another model's: {reason}; give the evaluator the model that is trained, or "
            "another folder"
        ) from error


def _copied(found: Found, folder: Path) -> Path:
    """Copies the file, because its writer may replace it, and because HDF5 locks the files that it reads."""
    copy = folder / found.path.name
    shutil.copyfile(found.path, copy)
    status = found.path.stat()
    if (status.st_mtime_ns, status.st_ino) != (
        found.written,
        found.inode,
    ) or copy.stat().st_size != found.size:
        raise NotWholeError("it is being written")
    return copy


def _load_file(model: Model, path: Path, name: str) -> Optional[int]:
    if path.suffix == ".checkpoint":
        return _load_backup(model, path.read_bytes(), name)
    step = _step_of_file(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        model.load_weights(str(path))
    return step


def _load_backup(model: Model, data: bytes, name: str) -> Optional[int]:
    try:
        facts, arrays = parse(data, name)
    except CheckpointError as error:
        raise NotWholeError(str(error)) from error
    listed = facts["variables"]
    state = Checkpoint(_of_model(listed), arrays)
    variables = _of_model(training_variables(model))
    group_state.check(state, variables, name)
    group_state.assign(None, state, variables)
    if "step" in facts:
        return int(facts["step"])
    counts = [key for key, fact in listed.items() if fact["label"].rpartition("/")[2] in _ITERATIONS]
    return int(arrays[counts[0]].max()) if counts else None


def _of_model(named: Dict[str, Value]) -> Dict[str, Value]:
    return {name: each for name, each in named.items() if name.startswith("model/")}


def _step_of_file(path: Path) -> Optional[int]:
    if path.suffix != ".keras":
        return _step_of_hdf5(path)
    with zipfile.ZipFile(path) as archive:
        return _step_of_hdf5(io.BytesIO(archive.read("model.weights.h5")))


def _step_of_hdf5(source: Union[str, Path, BinaryIO]) -> Optional[int]:
    """Returns the optimizer's count of steps: its first variable or, in files of whole models, the variable of this name."""
    counted = []

    def look(name: str, each: Union[h5py.Group, h5py.Dataset]) -> None:
        parts = re.split(r"[/:]", name)
        is_count = name.endswith("optimizer/vars/0") or (
            "optimizer_weights" in parts and any(part in _ITERATIONS for part in parts)
        )
        if is_count and isinstance(each, h5py.Dataset) and each.shape == () and each.dtype.kind in "iu":
            counted.append(int(each[()]))

    with h5py.File(source, "r") as file:
        file.visititems(look)
    return counted[0] if counted else None


def _load_tensorflow(model: Model, prefix: str) -> Optional[int]:
    """Loads what `model.save_weights` of Keras 2 or a `tf.train.Checkpoint` of the model writes."""
    reader = tf.train.load_checkpoint(prefix)
    keys = sorted(reader.get_variable_to_shape_map())
    named = any(key.startswith("model/") for key in keys)
    checkpoint = tf.train.Checkpoint(model=model) if named else tf.train.Checkpoint(model)
    status = checkpoint.read(prefix)
    status.expect_partial()
    try:
        status.assert_nontrivial_match()
    except AssertionError as error:
        raise ValueError(str(error)) from None
    counts = [key for key in keys if key.removesuffix(_VALUE).split("/")[-2:] in _counters()]
    return int(reader.get_tensor(counts[0])) if counts else None


def _counters() -> list:
    return [["optimizer", name] for name in _ITERATIONS]
