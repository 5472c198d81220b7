"""SidecarEvaluator on checkpoints of all kinds, whole and not; one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tf_strategies.evaluator import sidecar_evaluator  # noqa: E402
from tf_strategies.evaluator.checkpoint_folder import CheckpointFolder  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
STEPS = 3


def make_model(width: int = 4) -> Any:
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(width),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
    return model


def rows() -> tuple:
    x = np.random.default_rng(5).standard_normal((12, 3)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def trained() -> Any:
    model = make_model()
    x, y = rows()
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    return model


def backup(model: Any, folder: Path) -> None:
    again = make_model()
    again.set_weights(model.get_weights())
    keep = tfs.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
    again.optimizer.learning_rate.assign(0.0)
    again.layers[-2].momentum = 1.0
    x, y = rows()
    again.fit(x, y, batch_size=4, epochs=1, verbose=0, callbacks=[keep])


def root(model: Any, folder: Path) -> None:
    if hasattr(keras, "ops"):  # Keras 3 has no format of its own for this.
        tf.train.Checkpoint(model).write(str(folder / "ckpt"))
    else:
        model.save_weights(str(folder / "ckpt"))


KINDS: Dict[str, Callable[[Any, Path], Any]] = {
    "training.checkpoint": backup,
    "model.keras": lambda model, folder: model.save(folder / "model.keras"),
    "last.weights.h5": lambda model, folder: model.save_weights(folder / "last.weights.h5"),
    "model.h5": lambda model, folder: model.save(folder / "model.h5"),
    "ckpt.index": root,
    "named-1.index": lambda model, folder: tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
        str(folder / "named")
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_checkpoint_is_evaluated(kind, trained, tmp_path: Path, capsys) -> None:
    KINDS[kind](trained, tmp_path)
    expected = trained.evaluate(*rows(), verbose=0, return_dict=True)
    evaluator = tfs.SidecarEvaluator(make_model(), rows(), tmp_path, max_evaluations=1)
    logs = evaluator.start()
    assert logs == pytest.approx(expected, rel=1e-5)
    ((path, step, found),) = evaluator.evaluations
    assert (path, found) == (tmp_path / kind, logs)
    assert step == STEPS
    assert (
        f"evaluated {kind} of step {STEPS}: loss {logs['loss']:.6g}, mae {logs['mae']:.6g}"
        in capsys.readouterr().out
    )
    (events,) = (tmp_path / "evaluator").glob("events*")
    written = [
        (event.step, value.tag)
        for event in map(parsed, tf.data.TFRecordDataset(str(events)))
        for value in event.summary.value
    ]
    assert written == [(STEPS, "evaluation/loss"), (STEPS, "evaluation/mae")]


def parsed(record: Any) -> Any:
    return tf.compat.v1.Event.FromString(record.numpy())


def test_the_newest_is_taken_and_each_once(trained, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        trained.save_weights(tmp_path / f"{number}.weights.h5")
        os.utime(tmp_path / f"{number}.weights.h5", (number, number))
    (tmp_path / ".saving-4.weights.h5").touch()
    (tmp_path / "notes.txt").touch()
    evaluator = tfs.SidecarEvaluator(make_model(), rows(), tmp_path, idle_timeout=1.0)
    evaluator.start()
    assert [made.path.name for made in evaluator.evaluations] == ["3.weights.h5"]
    os.utime(tmp_path / "1.weights.h5", (4, 4))
    evaluator.start()
    assert [made.path.name for made in evaluator.evaluations] == ["3.weights.h5", "1.weights.h5"]


def test_what_is_written_in_the_same_instant_is_found(tmp_path: Path) -> None:
    for name in ("a.keras", "b.keras"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    folder = CheckpointFolder(tmp_path)
    seen = []
    while (found := folder.newest()) is not None:
        seen.append(found.path.name)
        folder.done_with(found)
    assert sorted(seen) == ["a.keras", "b.keras"]


@pytest.mark.parametrize("kind", ["training.checkpoint", "model.keras", "last.weights.h5", "named-1.index"])
def test_half_a_checkpoint_is_waited_for_and_named(kind, trained, tmp_path: Path, monkeypatch) -> None:
    KINDS[kind](trained, tmp_path)
    target = tmp_path / ("named-1.data-00000-of-00001" if kind.endswith(".index") else kind)
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(sidecar_evaluator, "_WHOLE_WITHIN_SECONDS", 1.0)
    evaluator = tfs.SidecarEvaluator(make_model(), rows(), tmp_path, max_evaluations=1)
    with pytest.raises(tfs.callbacks.CheckpointError, match=f"{kind} could not be read for 1 s"):
        evaluator.start()
    target.write_bytes(whole)
    assert evaluator.start() == pytest.approx(
        trained.evaluate(*rows(), verbose=0, return_dict=True), rel=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_another_model_is_named(kind, trained, tmp_path: Path) -> None:
    KINDS[kind](trained, tmp_path)
    with pytest.raises(tfs.callbacks.CheckpointError, match=rf"{kind} is another model's"):
        tfs.SidecarEvaluator(make_model(width=5), rows(), tmp_path).start()


def test_nothing_to_evaluate_is_an_error(tmp_path: Path) -> None:
    evaluator = tfs.SidecarEvaluator(make_model(), rows(), tmp_path / "absent", idle_timeout=0.5)
    with pytest.raises(
        tfs.callbacks.CheckpointError, match=r"no checkpoint was written to .*absent.* 0\.5 s"
    ):
        evaluator.start()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoint_dir": ""}, "checkpoint_dir"),
        ({"checkpoint_dir": None}, "checkpoint_dir"),
        ({"checkpoint_dir": __file__}, "is a file"),
        ({"steps": 0}, "steps"),
        ({"max_evaluations": True}, "max_evaluations"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"model": "not compiled"}, "compile it"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, tmp_path: Path) -> None:
    given = {"model": make_model(), "data": rows(), "checkpoint_dir": tmp_path, **arguments}
    if given["model"] == "not compiled":
        given["model"] = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.SidecarEvaluator(**given)
