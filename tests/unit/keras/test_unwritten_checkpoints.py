"""ModelCheckpoint on workers that are not the chief, and may become it: it decides as that of the chief, and writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies.keras import bridge, callback_list  # noqa: E402
from tf_strategies.keras.worker_strategy import WorkerStrategy  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras


class Worker(WorkerStrategy):
    """A strategy that trains alone, and is a worker of many to the callbacks."""

    size = 3

    def __init__(self, rank: int, *, is_elastic: bool) -> None:
        self.rank, self.is_elastic = rank, is_elastic


@pytest.fixture
def model() -> Any:
    bridge.install()
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def make_checkpoint(folder: Path, **arguments: Any) -> Any:
    path = str(folder / "made" / "{epoch}.weights.h5")
    return keras.callbacks.ModelCheckpoint(
        path, "loss", verbose=1, save_weights_only=True, save_best_only=True, **arguments
    )


def run(
    monkeypatch: pytest.MonkeyPatch, model: Any, callback: Any, strategy: Worker, losses: Dict[int, float]
) -> List[Any]:
    """Runs epochs on a worker. Returns the callbacks that are called."""
    monkeypatch.setattr(callback_list, "workers_of", lambda found: strategy if found is model else None)
    called = keras.callbacks.CallbackList([callback], model=model)
    called.on_train_begin()
    for epoch, loss in losses.items():
        called.on_epoch_begin(epoch)
        called.on_train_batch_end(0, {"loss": loss})
        called.on_epoch_end(epoch, {"loss": loss})
    return called.callbacks


def names_in(folder: Path) -> Optional[List[str]]:
    made = folder / "made"
    return sorted(path.name for path in made.iterdir()) if made.exists() else None


@pytest.mark.parametrize("save_freq", ["epoch", 1])
def test_a_new_chief_knows_the_best_value_and_writes(
    save_freq: Any, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    checkpoint = make_checkpoint(tmp_path, save_freq=save_freq)
    if save_freq == 1 and hasattr(checkpoint, "_set_monitor_op"):  # Keras 3 makes it at the end of an epoch
        checkpoint.set_model(model)
        checkpoint._set_monitor_op()
    path = checkpoint.filepath
    other, chief = Worker(1, is_elastic=True), Worker(0, is_elastic=True)
    for losses in ({0: 3.0, 1: 2.0}, {2: 2.5}):
        assert checkpoint in run(monkeypatch, model, checkpoint, other, losses)
    assert (checkpoint.best, checkpoint.filepath, checkpoint.verbose) == (2.0, path, 1)
    assert names_in(tmp_path) is None
    assert capsys.readouterr().out == ""
    run(monkeypatch, model, checkpoint, chief, {3: 2.2, 4: 1.0})
    assert names_in(tmp_path) == ["5.weights.h5"]
    assert "improved from 2.00000 to 1.00000" in capsys.readouterr().out
    run(monkeypatch, model, checkpoint, other, {5: 0.5})
    run(monkeypatch, model, checkpoint, chief, {6: 0.4})
    assert names_in(tmp_path) == ["5.weights.h5", "7.weights.h5"]


def test_whole_models_are_not_written_either(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = keras.callbacks.ModelCheckpoint(str(tmp_path / "made" / "all.keras"))
    run(monkeypatch, model, checkpoint, Worker(2, is_elastic=True), {0: 1.0})
    assert names_in(tmp_path) is None
    run(monkeypatch, model, checkpoint, Worker(0, is_elastic=True), {0: 1.0})
    assert names_in(tmp_path) == ["all.keras"]


def test_without_elastic_the_others_have_none(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint(tmp_path)
    called = run(monkeypatch, model, checkpoint, Worker(1, is_elastic=False), {0: 1.0})
    assert checkpoint not in called
    assert names_in(tmp_path) is None
