"""A CSVLogger that continues its file: each epoch has one row, and what others wrote stays."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies.elastic.csv_files import continue_file  # noqa: E402
from tf_strategies.keras import callback_list  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
HEADER = "epoch;loss;val_loss\r\n"


class OwnLogger(keras.callbacks.CSVLogger):
    """Runs on all workers."""


def log(logger: Any, *epochs: int) -> None:
    """Runs epochs without the end of training."""
    logger.set_model(None)
    logger.on_train_begin()
    for epoch in epochs:
        logger.on_epoch_end(epoch, {"loss": f"a; {epoch}"})


def rows(*epochs: int) -> str:
    return "".join(f'{epoch};"a; {epoch}";NA\r\n' for epoch in epochs)


def content(path: Path) -> str:
    return path.read_bytes().decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.csv"


@pytest.mark.parametrize(
    ("written", "epoch", "left"), [([0, 1, 2], 2, [0, 1]), ([0, 1], 2, [0, 1]), ([0], -1, [])]
)
@pytest.mark.parametrize("is_same_chief", [True, False])
def test_an_epoch_that_comes_again_has_one_row(written, epoch, left, is_same_chief, path: Path) -> None:
    logger = keras.callbacks.CSVLogger(str(path), separator=";")
    log(logger, *written)
    path.chmod(0o640)
    if not is_same_chief:
        logger = keras.callbacks.CSVLogger(str(path), separator=";")
    assert continue_file(logger, epoch) is False
    assert logger.append is True
    assert content(path) == HEADER + rows(*left)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    log(logger, 2, 3)
    logger.on_train_end()
    assert content(path) == HEADER + rows(*left, 2, 3)
    assert list(path.parent.iterdir()) == [path]


def test_rows_of_earlier_calls_of_fit_stay(path: Path) -> None:
    for epochs in ((0, 1, 2), (0, 1)):
        logger = keras.callbacks.CSVLogger(str(path), separator=";", append=True)
        log(logger, *epochs)
        logger.csv_file.close()
    assert continue_file(logger, 1) is True
    assert content(path) == HEADER + rows(0, 1, 2, 0)
    assert continue_file(logger, 1) is True
    assert content(path) == HEADER + rows(0, 1, 2, 0)


@pytest.mark.parametrize("append", [True, False])
def test_a_row_that_was_cut_off_goes(append: bool, path: Path) -> None:
    logger = keras.callbacks.CSVLogger(str(path), separator=";", append=append)
    path.write_bytes((HEADER + rows(0, 1) + '1;"a').encode())
    continue_file(logger, 2)
    assert content(path) == HEADER + rows(0, 1)


def test_without_a_file_there_is_nothing_to_do(path: Path) -> None:
    logger = keras.callbacks.CSVLogger(str(path), separator=";")
    continue_file(logger, 0)
    assert not path.exists()
    log(logger, 0)
    assert content(path) == HEADER + rows(0)


def test_a_link_stays_a_link(path: Path) -> None:
    real = path.with_name("real.csv")
    real.write_text("epoch,loss\n0,1\n1,2\n")
    path.symlink_to(real)
    continue_file(keras.callbacks.CSVLogger(str(path)), 1)
    assert path.is_symlink()
    assert real.read_text() == "epoch,loss\n0,1\n"


def test_a_new_chief_finds_the_file_of_a_derived_class(path: Path) -> None:
    logger = OwnLogger(str(path), separator=";")
    log(logger, 0, 1)
    callback_list._hide(logger, "filename", lambda path: os.devnull)
    continue_file(logger, 1)
    assert content(path) == HEADER + rows(0)
