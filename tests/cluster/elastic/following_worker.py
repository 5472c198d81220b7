"""One worker of test_batch_per_worker.py: `fit` whose global batch follows the workers, with faults as in fit_worker.py.

{"data": "arrays" | "dataset" | "unknown" | "repeated", "faults": {"RANK": ["kill", BATCH]}, "meet": BATCH or 0,
     "backup": PATH or "", "save_freq": BATCHES, ...}

Prints the place of each batch beside what fit_worker.py prints. With "unknown" data, a callback evaluates the model and trains
another one after each epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.elastic.fit_worker import Fault, Meeting
from tests.cluster.elastic.task import BATCH, EPOCHS, STEPS, make_model, make_rows, make_schedule
from tests.cluster.elastic.worker import main, tell_result


class Places(tf.keras.callbacks.Callback):
    """Prints the place of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        print("at epoch", self._epoch, "batch", batch, flush=True)


class UsesModels(tf.keras.callbacks.Callback):
    """Evaluates the model that is trained, and trains another one."""

    def __init__(self, other: tf.keras.Model) -> None:
        super().__init__()
        self._other = other

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        x, y = make_rows()
        self.model.evaluate(x, y, batch_size=BATCH, verbose=0)
        self._other.fit(x[:BATCH], y[:BATCH], batch_size=BATCH, verbose=0)


def data(kind: str) -> Dict[str, Any]:
    x, y = make_rows()
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    if kind == "repeated":
        return {"x": rows.repeat().batch(BATCH), "steps_per_epoch": STEPS}
    batches = rows.batch(BATCH).map(lambda features, labels: (features, labels)).prefetch(2)
    if kind == "unknown":  # of unknown length
        batches = batches.filter(lambda features, labels: tf.size(labels) > 0)
    return {"x": batches}


def train(plan: Dict[str, Any], again: bool) -> None:
    tf.keras.utils.set_random_seed(1)
    elastic = tfs.Elastic(batch="per_worker")
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60), elastic=elastic)
    with strategy.scope():
        model, other = make_model(), make_model()
    kind, moment = ["", 0] if again else plan["faults"].get(str(strategy.rank), ["", 0])
    callbacks = [
        Fault(kind, moment, Path(plan["folder"], f"{kind}-{strategy.rank}")),
        *([Meeting(strategy, plan)] if plan["meet"] else []),
        make_schedule(),
        Places(),
    ]
    if plan["backup"]:
        callbacks.append(tfs.callbacks.BackupAndRestore(plan["backup"], save_freq=plan["save_freq"]))
    if plan["data"] == "unknown":
        callbacks.append(UsesModels(other))
    validation = make_rows()
    history = model.fit(
        epochs=EPOCHS, verbose=2, callbacks=callbacks, validation_data=validation, **data(plan["data"])
    )
    tell_result(strategy, model, history.history)


if __name__ == "__main__":
    main(train)
