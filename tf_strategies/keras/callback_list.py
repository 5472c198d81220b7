"""Adapts callbacks to several workers: all workers decide, and only the chief prints and writes.

Every worker runs its callbacks, because they see the same logs and must make the same decisions. Workers
other than the chief show no progress bar. They skip Keras's own callbacks that only write (TensorBoard,
CSVLogger, ModelCheckpoint). Classes derived from these run, but write to a temporary folder. If another worker
may become the chief, ModelCheckpoint runs and writes nothing, so that the next chief knows what is best.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Optional

from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_types import Callback, CallbackList, Callbacks
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.running_fit import calls_callbacks, note_callbacks
from tf_strategies.keras.stopping import agree_after_callbacks
from tf_strategies.keras.types import Model
from tf_strategies.keras.worker_strategy import workers_of

__all__ = ["init", "path_of_chief"]

_paths_of_chief: weakref.WeakKeyDictionary[Callback, Dict[str, str]] = weakref.WeakKeyDictionary()

_WRITERS = ("TensorBoard", "CSVLogger", "ModelCheckpoint", "ProgbarLogger")


def init(made: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the constructor of a CallbackList that adapts callbacks to workers.

    `fit`, `evaluate` and `predict` make these lists.
    """

    @functools.wraps(made)
    def init_adapted(
        self: CallbackList,
        callbacks: Callbacks = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Optional[Model] = None,
        **params: Any,
    ) -> None:
        strategy = workers_of(model)
        if strategy is not None:
            given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
            others = functools.partial(_for_others, may_write_later=strategy.is_elastic)
            adapt = _for_chief if strategy.rank == 0 else others
            callbacks = [
                kept for each in given for kept in [_adapted(keras, each, adapt)] if kept is not None
            ]
            if not calls_callbacks():
                callbacks.extend(strategy.own_callbacks())
            add_progbar = add_progbar and strategy.rank == 0
        made(self, callbacks, add_history, add_progbar, model, **params)
        note_callbacks(self, model)
        if group_of(model) is not None:
            agree_after_callbacks(self, model)  # type: ignore[arg-type]  # a model of a group

    return init_adapted


def path_of_chief(callback: Callback, name: str) -> str:
    """Returns the path in an attribute of a callback, as it is when this worker is the chief."""
    path: str = _paths_of_chief.get(callback, {}).get(name) or getattr(callback, name)
    return path


def _adapted(
    keras: ModuleType, callback: Callback, adapt: Callable[[ModuleType, Callback], Optional[Callback]]
) -> Optional[Callback]:
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        raise OptionsError(
            f"{type(callback).__name__} works in one process only; with several workers use "
            f"tfs.callbacks.BackupAndRestore(directory), which restores all of them"
        )
    return adapt(keras, callback)


def _for_chief(keras: ModuleType, callback: Callback) -> Callback:
    for name, path in _paths_of_chief.get(callback, {}).items():
        setattr(callback, name, path)
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        from tf_strategies.keras.atomic_files import remove_left_over, save_atomically
        from tf_strategies.keras.unwritten_checkpoints import write_again

        write_again(callback)
        remove_left_over(callback.filepath)
        save_atomically(callback)
    return callback


def _for_others(keras: ModuleType, callback: Callback, *, may_write_later: bool) -> Optional[Callback]:
    if may_write_later and type(callback) is keras.callbacks.ModelCheckpoint:
        from tf_strategies.keras.unwritten_checkpoints import write_nothing

        write_nothing(callback)  # type: ignore[arg-type]  # it is one
        return callback
    writers = tuple(getattr(keras.callbacks, name) for name in _WRITERS)
    if type(callback) in writers:
        return None
    if isinstance(callback, keras.callbacks.TensorBoard):
        _hide(callback, "log_dir", lambda path: _unseen_folder(callback))
    elif isinstance(callback, keras.callbacks.CSVLogger):
        _hide(callback, "filename", lambda path: os.devnull)
    elif isinstance(callback, keras.callbacks.ModelCheckpoint):
        _hide(callback, "filepath", lambda path: str(Path(_unseen_folder(callback), Path(path).name)))
    return callback


def _hide(callback: Callback, name: str, elsewhere: Callable[[str], str]) -> None:
    """Makes a callback write elsewhere, until this worker is the chief."""
    paths = _paths_of_chief.setdefault(callback, {})
    if name not in paths:
        paths[name] = getattr(callback, name)
        setattr(callback, name, elsewhere(paths[name]))


def _unseen_folder(owner: Callback) -> str:
    folder = tempfile.mkdtemp(prefix="tf_strategies-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
