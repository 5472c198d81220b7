"""Writes files and folders atomically: they are complete or unchanged, also if the process is killed while it writes.

New content is written beside the target under a temporary name, flushed to the disk, and then renamed to the
target in one operation of the file system. Temporary files of a killed process are removed by the next
process that writes there, and when the next training starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import os
import re
import shutil
import socket
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple, Union

from tf_strategies.keras.fit_types import ModelCheckpoint
from tf_strategies.keras.types import Model
from tf_strategies.types import Kwargs

__all__ = ["remove_left_over", "replaced", "save_atomically"]

_PREFIX = ".saving-"
_ONE_FILE = (".keras", ".h5", ".hdf5")
_FIELD = re.compile(r"{[^}]*}")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextlib.contextmanager
def replaced(target: Union[str, os.PathLike[str]]) -> Iterator[Path]:
    """Opens a context with a temporary path beside `target`.

    It replaces `target` if the block succeeds, and is removed otherwise.

    The block may make a file or a folder there. The temporary name has the suffix of the target, which
    determines the format. Only one process may write at a time.

    Args:
        target: a local path. Its folder is created if necessary.

    Raises:
        OSError: the block wrote nothing, or the target cannot be replaced.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for left_over in _left_over(target.parent, re.escape(target.name)):
        _remove(left_over)
    temporary = target.parent / f"{_PREFIX}{socket.gethostname()}-{os.getpid()}-{target.name}"
    try:
        yield temporary
        _bring_to_disk(temporary)
        if temporary.is_dir() and target.exists():
            _exchange_folders(temporary, target)
        else:
            temporary.replace(target)
        _bring_to_disk(target.parent, contents=False)
    finally:
        _remove(temporary)


def remove_left_over(target: Union[str, os.PathLike[str]]) -> None:
    """Removes temporary files that killed processes left beside a target.

    Only this process may write the target.

    Args:
        target: a local path. It may have fields such as `{epoch:02d}`, which match any text.
    """
    path = Path(target)
    if "://" in str(target):
        return
    known = path.parent
    while "{" in str(known):
        known = known.parent
    inner = [_FIELD.sub("*", glob.escape(part)) for part in path.parent.relative_to(known).parts]
    name = ".*".join(map(re.escape, _FIELD.split(path.name)))
    for folder in known.glob("/".join(inner)) if inner else [known]:
        for left_over in _left_over(folder, name):
            _remove(left_over)


def save_atomically(callback: ModelCheckpoint) -> ModelCheckpoint:
    """Makes a ModelCheckpoint of any Keras save through `replaced`. Returns the callback.

    This covers `.keras`, `.h5` and `.weights.h5` files, and SavedModel folders. Weights in TensorFlow's own
    format (Keras 2, no suffix) are two files, which TensorFlow renames one after the other: use names with
    `{epoch}`, or `.weights.h5`. Keras itself saves to paths with a scheme (`gs://`).
    """
    if "_save_model" in vars(callback):
        return callback
    save = callback._save_model
    model_attribute = "_model" if hasattr(type(callback), "model") else "model"

    @functools.wraps(save)
    def save_model(*args: Any, **kwargs: Any) -> object:
        model = getattr(callback, model_attribute)
        setattr(callback, model_attribute, _SavedAtomically(model))
        try:
            return save(*args, **kwargs)
        finally:
            setattr(callback, model_attribute, model)

    callback._save_model = save_model
    return callback


class _SavedAtomically:
    """A model for ModelCheckpoint that saves atomically."""

    def __init__(self, model: Model) -> None:
        self._saved = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saved, name)

    def save(self, filepath: Union[str, Path], *args: Any, **kwargs: Any) -> None:
        self._write(self._saved.save, filepath, args, kwargs, is_whole=True)

    def save_weights(self, filepath: Union[str, Path], *args: Any, **kwargs: Any) -> None:
        is_whole = str(filepath).endswith(_ONE_FILE) or kwargs.get("save_format") == "h5"
        self._write(self._saved.save_weights, filepath, args, kwargs, is_whole=is_whole)

    def _write(
        self,
        write: Callable[..., None],
        filepath: Union[str, Path],
        args: Tuple[object, ...],
        kwargs: Kwargs,
        is_whole: bool,
    ) -> None:
        if not is_whole or "://" in str(filepath):
            write(filepath, *args, **kwargs)
            return
        with replaced(str(filepath).rstrip("/")) as temporary:
            write(str(temporary), *args, **kwargs)


def _left_over(folder: Path, name: str) -> List[Path]:
    """Returns the temporary files of a target, and those of other targets in its folder whose writers no longer run.

    Args:
        folder: the folder of the target.
        name: a regular expression that matches the target's name.
    """
    found = []
    for path in folder.glob(f"{_PREFIX}*"):
        if re.fullmatch(rf"{re.escape(_PREFIX)}.+-\d+-{name}", path.name):
            found.append(path)
            continue
        mine = path.name[len(_PREFIX) :]
        here = f"{socket.gethostname()}-"
        process = mine[len(here) :].partition("-")[0] if mine.startswith(here) else ""
        if process.isdigit() and not _runs(int(process)):
            found.append(path)
    return found


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _bring_to_disk(path: Path, contents: bool = True) -> None:
    if path.is_dir() and contents:
        for inner in path.iterdir():
            _bring_to_disk(inner)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _exchange_folders(temporary: Path, target: Path) -> None:
    """Replaces a folder that is not empty, which `os.replace` cannot do.

    The old folder gets the temporary name.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    exchange = getattr(libc, "renameat2", None)
    if exchange is not None:
        names = os.fsencode(temporary), os.fsencode(target)
        if exchange(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))
    former = temporary.with_name(f"{temporary.name}.former")
    target.replace(former)
    temporary.replace(target)
    _remove(former)
