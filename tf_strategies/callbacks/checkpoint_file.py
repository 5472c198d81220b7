"""Reads and writes checkpoint files: zip archives, in which each part has a checksum.

`training.json` has the position of training and the list of arrays; `arrays/<n>` has their bytes.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import IO, Dict, NamedTuple, Union

import numpy as np
import tensorflow as tf

from tf_strategies._version import __version__
from tf_strategies.errors import TfStrategiesError
from tf_strategies.keras.atomic_files import replaced
from tf_strategies.types import JsonObject

__all__ = ["Checkpoint", "CheckpointError", "pack", "parse", "read_facts", "write"]

_FORMAT = 1
_HEADER = "training.json"
_DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError)


class CheckpointError(TfStrategiesError, RuntimeError):
    """Reports that a checkpoint cannot be read or written, or belongs to another model.

    The message names the file, the cause and the remedy.
    """


class Checkpoint(NamedTuple):
    """Holds the content of a checkpoint file.

    Attributes:
        facts: plain data that JSON can represent.
        arrays: arrays of any shape and dtype, by name.
    """

    facts: JsonObject
    arrays: Dict[str, np.ndarray]


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes the file atomically. If the process is killed meanwhile, the previous file stays complete.

    Raises:
        OSError: the file system refuses it.
    """
    with replaced(path) as temporary:
        _write(temporary, checkpoint)


def pack(checkpoint: Checkpoint) -> bytes:
    """Converts a checkpoint to the bytes of a file."""
    data = io.BytesIO()
    _write(data, checkpoint)
    return data.getvalue()


def parse(data: bytes, name: str) -> Checkpoint:
    """Parses the bytes of a file.

    Raises:
        CheckpointError: the bytes are damaged, or are not a checkpoint. `name` is the source in the message.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            header = _header(archive, name)
            arrays = {
                entry["name"]: np.frombuffer(
                    archive.read(f"arrays/{number}"), tf.as_dtype(entry["dtype"]).as_numpy_dtype
                ).reshape(entry["shape"])
                for number, entry in enumerate(header["arrays"])
            }
            return Checkpoint(header["facts"], arrays)
    except _DAMAGES as error:
        raise _damaged(name, error) from error


def read_facts(path: Path) -> JsonObject:
    """Reads the facts of a file alone.

    Raises:
        CheckpointError: the file is damaged, or is not a checkpoint.
        OSError: the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            facts: JsonObject = _header(archive, str(path))["facts"]
            return facts
    except _DAMAGES as error:
        raise _damaged(str(path), error) from error


def _header(archive: zipfile.ZipFile, name: str) -> JsonObject:
    header: JsonObject = json.loads(archive.read(_HEADER))
    if header["format"] != _FORMAT:
        raise CheckpointError(
            f"checkpoint {name} has format {header['format']}, and this version of tf_strategies ({__version__}) reads "
            f"format {_FORMAT}; use tf_strategies {header['written_by']}, or delete the file to train from the start"
        )
    return header


def _damaged(name: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {name} is damaged ({error}); put back a copy of it, or delete it to train from the start"
    )


def _write(target: Union[Path, IO[bytes]], checkpoint: Checkpoint) -> None:
    index = [
        {"name": name, "dtype": tf.as_dtype(array.dtype).name, "shape": list(array.shape)}
        for name, array in checkpoint.arrays.items()
    ]
    header = {"format": _FORMAT, "written_by": __version__, "facts": checkpoint.facts, "arrays": index}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEADER, json.dumps(header))
        for number, array in enumerate(checkpoint.arrays.values()):
            archive.writestr(f"arrays/{number}", np.ascontiguousarray(array).tobytes())
