"""One worker of test_elastic.py: `fit` with a fault on some workers, given as JSON.

    {"data": "arrays" | "holding" | "replicas" | "shuffled" | "unknown" | "unseeded" | "generator" | "from_generator" |
     "callback_list", "folder": PATH, "faults": {"RANK": ["kill" | "terminate" | "stop" | "raise" | "cut" | "mute", MOMENT]},
     "meet": BATCH or 0, "wrong": "", "backup": PATH or "", "save_freq": "epoch" or BATCHES}

MOMENT is the number of a training batch, from 1, "validation", "end" of `fit`, "saving": while the chief writes a backup, or
"forming": while the survivors of another fault form a group. With "meet", all wait from this batch of `fit` on until those
have joined that have started again, with the argument "again". These do something "wrong": have "rows" in another order, other
"batches", another "model", or an "exception". With "backup", a folder in which "{rank}" stands for the rank, training is saved.
"holding" is "arrays" for a `train_step` that reads the size of the group while it is traced, and "replicas" for two replicas in
each worker. Prints each trace, each finished batch, and the results as one line of JSON.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.elastic.task import BATCH, BATCHES, EPOCHS, ON_TRACE, make_model, make_rows, make_schedule
from tests.cluster.elastic.worker import main, tell_result, wait_for_others
from tests.support.processes import wait_until
from tests.support.replicas import on_cpus
from tf_strategies.native.membership import Membership

HOST_FAULTS = ("cut", "mute")
KILL_AFTER_CUT = "kill after cut"
_SIGNALS = {
    "kill": signal.SIGKILL,
    KILL_AFTER_CUT: signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "stop": signal.SIGSTOP,
}


class Fault(tf.keras.callbacks.Callback):
    """Does something wrong at a moment of this worker."""

    def __init__(self, kind: str, moment: Any, done: Path) -> None:
        super().__init__()
        self._kind, self._moment, self._done, self._batches = kind, moment, done, 0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self._batches += 1
        self._reach(self._batches)

    def on_train_end(self, logs: object = None) -> None:
        self._reach("end")

    def on_test_batch_begin(self, batch: int, logs: object = None) -> None:
        self._reach("validation")

    def _reach(self, moment: Any) -> None:
        if moment != self._moment:
            return
        self._moment = None
        print("fault", time.monotonic(), flush=True)
        if self._kind == "raise":
            raise ValueError("the mistake of one worker")
        if self._kind in HOST_FAULTS:
            wait_until(self._done.exists, 30, self._kind)
            return
        if self._kind == KILL_AFTER_CUT:
            wait_until(lambda: any(self._done.parent.glob("cut-*")), 30, "the cut of another host")
        os.kill(os.getpid(), _SIGNALS[self._kind])


class Batches(tf.keras.callbacks.Callback):
    """Prints each batch that has ended. It runs nothing before the first step, unlike the other callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._batches += 1
        print("batch", self._batches, time.monotonic(), flush=True)


class Meeting(tf.keras.callbacks.Callback):
    """Waits, from a batch of `fit` on, until those that have started again have joined, or have ended with an error."""

    def __init__(self, strategy: tfs.CollectiveAllReduceStrategy, plan: Dict[str, Any]) -> None:
        super().__init__()
        self._strategy, self._plan, self._size = strategy, plan, strategy.size
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if self._epoch * BATCHES + batch + 1 >= self._plan["meet"]:
            wait_for_others(self._strategy, self._size, self._plan)


def data(kind: str) -> Dict[str, Any]:
    x, y = make_rows()
    if kind in ("arrays", "holding", "replicas", "callback_list"):
        return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    if kind == "shuffled":
        return {"x": tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=3).batch(BATCH)}

    if kind == "unknown":  # of unknown length
        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        return {"x": batches.filter(lambda features, labels: tf.size(labels) > 0)}
    if kind == "unseeded":
        return {"x": x, "y": y, "batch_size": BATCH}

    def endless() -> Iterator[Any]:
        while True:
            yield x[:BATCH], y[:BATCH]

    if kind == "from_generator":
        specs = tuple(tf.TensorSpec([BATCH, *each.shape[1:]], tf.float32) for each in (x, y))
        return {"x": tf.data.Dataset.from_generator(endless, output_signature=specs), "steps_per_epoch": 100}
    return {"x": endless(), "steps_per_epoch": 100}


class Leaves(tf.keras.callbacks.Callback):
    """Ends the process in good order, after an error that the script has caught."""

    def on_train_begin(self, logs: object = None) -> None:
        raise KeyError("the mistake of a worker that has come back")


def do_wrong(what: str, given: Dict[str, Any], callbacks: List[tf.keras.callbacks.Callback]) -> None:
    """Changes the arguments of `fit`."""
    if what == "rows":
        given["x"], given["y"] = given["x"][::-1], given["y"][::-1]
    elif what == "batches":
        given["batch_size"] += 1
    elif what == "exception":
        callbacks.append(Leaves())


def die_while_forming() -> None:
    """Kills this process when the survivors have decided on the next group, before it has formed."""

    def form(*args: Any, **kwargs: Any) -> None:
        print("fault", time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    Membership.form = form  # type: ignore[method-assign]


def die_while_saving() -> None:
    """Kills this process when it has written a backup that is not in its place yet."""

    def replace(self: Path, target: Path) -> None:
        print("fault", time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    Path.replace = replace  # type: ignore[method-assign,assignment]


def train(plan: Dict[str, Any], again: bool) -> None:
    if plan["data"] != "unseeded":
        tf.keras.utils.set_random_seed(1)
    options = tfs.CommunicationOptions(timeout=60)
    make = functools.partial(on_cpus, 2) if plan["data"] == "replicas" else tfs.CollectiveAllReduceStrategy
    strategy = make(communication_options=options, elastic=tfs.Elastic())
    size = (lambda: strategy.size) if plan["data"] == "holding" else (lambda: "")
    ON_TRACE.append(lambda: print("traced", size(), flush=True))
    with strategy.scope():
        model = make_model(wider=again and plan["wrong"] == "model")
    kind, moment = ["", 0] if again else plan["faults"].get(str(strategy.rank), ["", 0])
    if moment == "forming":
        die_while_forming()
    elif moment == "saving":
        die_while_saving()
    fault = Fault(kind, moment, Path(plan["folder"], f"{kind}-{strategy.rank}"))
    runs_before = not (again and plan["data"] == "arrays")
    callbacks = [
        Batches(),
        *([fault] if runs_before else []),
        *([Meeting(strategy, plan)] if plan["meet"] and runs_before else []),
        tf.keras.callbacks.CSVLogger(str(Path(plan["folder"], "log.csv"))),
        tf.keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=EPOCHS - 1),
        make_schedule(),
        tf.keras.callbacks.ModelCheckpoint(
            str(Path(plan["folder"], "greatest-{epoch}.weights.h5")),
            monitor="loss",
            mode="max",
            save_best_only=True,
            save_weights_only=True,
        ),
    ]
    if plan["backup"]:
        folder = plan["backup"].format(rank=strategy.rank)
        callbacks.append(tfs.callbacks.BackupAndRestore(folder, save_freq=plan["save_freq"]))
    validation = make_rows()
    given = data(plan["data"])
    if plan["data"] == "callback_list":
        callbacks = tf.keras.callbacks.CallbackList(
            callbacks, model=model, epochs=EPOCHS, verbose=0, steps=None
        )
    if again:
        do_wrong(plan["wrong"], given, callbacks)
    history = model.fit(
        epochs=EPOCHS + 3, verbose=0, callbacks=callbacks, validation_data=validation, **given
    )
    tell_result(strategy, model, history.history)


if __name__ == "__main__":
    main(train)
