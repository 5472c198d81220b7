"""Makes CSVLogger continue its file when `fit` goes on within an epoch, whose row may be there already."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import List, Optional

from tf_strategies.keras.atomic_files import replaced
from tf_strategies.keras.callback_list import path_of_chief
from tf_strategies.keras.fit_types import CSVLogger

__all__ = ["continue_file"]


def continue_file(callback: CSVLogger, epoch: int) -> bool:
    """Prepares a CSVLogger for a further attempt of `fit`. Only the worker that will be the chief may call it.

    It removes the rows of epochs that come again, and sets `append`. The file changes as a whole or not at all. Before
    the first further attempt, this is each row from `epoch` on, unless the user has set `append`: then there may be rows
    of earlier calls of `fit`, and only last rows of this very epoch are removed. No later one can be there, because all
    workers end an epoch together.

    Args:
        callback: the callback, whose file need not exist.
        epoch: the epoch that begins or continues, from 0.

    Returns the former value of `append`, for the caller to put back after `fit`.

    Raises:
        OSError: the file cannot be read or written.
    """
    appended = bool(callback.append)
    file = getattr(callback, "csv_file", None)
    if file is not None:
        file.close()
    callback.writer = None  # Keras 2 would write to the former file.
    callback.append = True
    path = Path(path_of_chief(callback, "filename"))
    if path.is_file():
        _remove_rows(path.resolve(), callback.sep, epoch, only_equal=appended)
    return appended


def _remove_rows(path: Path, separator: str, epoch: int, *, only_equal: bool) -> None:
    with path.open(newline="", errors="surrogateescape") as file:
        text = file.read()
    rows = list(csv.reader(text.splitlines(keepends=True), delimiter=separator))
    kept = list(rows)
    if kept and not text.endswith("\n"):  # The chief was lost while it wrote.
        kept.pop()
    if only_equal:
        while kept and _epoch_of(kept[-1]) == epoch:
            kept.pop()
    else:
        kept = [row for row in kept if (found := _epoch_of(row)) is None or found < epoch]
    if len(kept) == len(rows):
        return
    with replaced(path) as temporary:
        with temporary.open("w", newline="", errors="surrogateescape") as file:
            csv.writer(file, delimiter=separator, lineterminator=_end_of_line(text)).writerows(kept)
        shutil.copymode(path, temporary)


def _epoch_of(row: List[str]) -> Optional[int]:
    """Returns the epoch of a row, and None of the names of columns and of foreign rows."""
    return int(row[0]) if row and row[0].isdecimal() else None


def _end_of_line(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
