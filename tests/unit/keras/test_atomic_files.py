"""What is saved atomically is whole or as it was, also when the process is killed while it writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, light_environment
from tf_strategies.keras.atomic_files import remove_left_over, replaced


def write(target: Path, text: str) -> None:
    with replaced(target) as temporary:
        temporary.write_text(text)


def names_in(folder: Path) -> list:
    return sorted(path.name for path in folder.iterdir())


def write_folder(target: Path, text: str) -> None:
    with replaced(target) as temporary:
        (temporary / "inner").mkdir(parents=True)
        (temporary / "inner" / "file").write_text(text)


def test_a_file_takes_the_place_of_the_former(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "model.keras"
    for text in ("first", "second"):
        write(target, text)
        assert target.read_text() == text
    assert names_in(target.parent) == [target.name]


def test_a_folder_takes_the_place_of_the_former(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for text in ("first", "second"):
        write_folder(target, text)
        assert (target / "inner" / "file").read_text() == text
    assert names_in(tmp_path) == [target.name]


def test_a_folder_is_replaced_also_where_two_cannot_be_exchanged(tmp_path: Path, monkeypatch) -> None:
    class Libc:
        def __init__(self, *args: object, **kwargs: object) -> None:
            pass

    monkeypatch.setattr("tf_strategies.keras.atomic_files.ctypes.CDLL", Libc)
    target = tmp_path / "model"
    for text in ("first", "second"):
        write_folder(target, text)
        assert (target / "inner" / "file").read_text() == text
    assert names_in(tmp_path) == [target.name]


def test_an_error_while_writing_leaves_the_former(tmp_path: Path) -> None:
    target = tmp_path / "model.keras"
    write(target, "former")
    with pytest.raises(OSError, match="disk full"), replaced(target) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert target.read_text() == "former"
    assert names_in(tmp_path) == [target.name]


def test_what_the_dead_left_is_removed_and_what_the_living_write_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    host = os.uname().nodename
    mine = tmp_path / ".saving-elsewhere-17-model.keras"
    dead = tmp_path / f".saving-{host}-{ended.pid}-other.keras"
    living = tmp_path / f".saving-{host}-{os.getppid()}-other.keras"
    foreign = tmp_path / ".saving-elsewhere-17-other.keras"
    for path in (mine, dead, living, foreign):
        path.write_text("half")
    write(tmp_path / "model.keras", "whole")
    assert names_in(tmp_path) == sorted([living.name, foreign.name, "model.keras"])


@pytest.mark.parametrize(
    ("target", "left", "others"),
    [
        ("model.keras", ["model.keras"], ["better-model.keras"]),
        (
            "a/m-{epoch:02d}-{val_loss:.2f}.keras",
            ["a/m-03-0.25.keras"],
            ["a/n-03-0.25.keras", "m-03-0.25.keras"],
        ),
        ("{epoch}/a/model.keras", ["1/a/model.keras", "23/a/model.keras"], ["1/model.keras"]),
    ],
)
def test_the_next_training_removes_what_a_killed_one_left(
    target: str, left: list, others: list, tmp_path: Path
) -> None:
    def temporary(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.with_name(f".saving-elsewhere-17-{path.name}")

    for name in [*left, *others]:
        temporary(name).write_text("half")
        (tmp_path / name).write_text("whole")
    remove_left_over(tmp_path / target)
    assert not any(temporary(name).exists() for name in left)
    assert all(temporary(name).exists() for name in others)
    assert all((tmp_path / name).read_text() == "whole" for name in [*left, *others])


def test_there_may_be_nothing_to_remove(tmp_path: Path) -> None:
    remove_left_over(tmp_path / "not made yet" / "{epoch}" / "model.keras")
    remove_left_over("gs://bucket/model-{epoch}.keras")


# Saves once; is killed in the middle of the second time.
SAVE = """
import os, signal, sys
import h5py, numpy as np, tensorflow as tf
from tf_strategies.keras.atomic_files import save_atomically
keras = tf.keras
path = sys.argv[1]
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones([8, 3], "float32"), np.zeros([8, 1], "float32")
saver = save_atomically(keras.callbacks.ModelCheckpoint(path, save_weights_only=".weights." in path))
model.fit(x, y, epochs=1, verbose=0, callbacks=[saver])
assert saver.model is model
np.savez(path + ".npz", *model.get_weights())
create, created = h5py.Group.create_dataset, []
def create_dataset(self, *args, **kwargs):
    created.append(create(self, *args, **kwargs))
    if len(created) == 2:
        self.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return created[-1]
h5py.Group.create_dataset = create_dataset
model.fit(x, y, epochs=1, verbose=0, callbacks=[saver])
"""
LOAD = """
import sys, numpy as np, tensorflow as tf
keras = tf.keras
for path in sys.argv[1:]:
    if path.endswith(".weights.h5"):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.load_weights(path)
    else:
        model = keras.models.load_model(path)
    with np.load(path + ".npz") as expected:
        for weight, name in zip(model.get_weights(), expected):
            np.testing.assert_array_equal(weight, expected[name])
print("loaded all", "tf_strategies" in sys.modules)
"""


def python(script: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=light_environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.keras
@pytest.mark.timeout(600)
def test_a_model_checkpoint_killed_while_it_writes_leaves_the_former_loadable(tmp_path: Path) -> None:
    paths = []
    for name in ("model.keras", "model.weights.h5"):
        path = tmp_path / name.replace(".", "-") / name
        killed = python(SAVE, str(path))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert list(path.parent.glob(".saving-*")), "it was to be killed while it wrote"
        paths.append(str(path))
    loaded = python(LOAD, *paths)
    assert loaded.stdout.splitlines()[-1:] == ["loaded all False"], loaded.stderr
