"""One worker of test_elastic_local_steps.py: `fit`, or a loop, with local steps in a group that changes, as a plan in JSON says.

    {"program": NAME, "faults": {"RANK": ["kill" | "terminate", STEP]}, "meet": STEP or 0, "saves": BOOL,
     "folder": PATH}

The fault comes before a step, from 1, of this worker. From the step "meet" on, which must follow an average, workers wait for
those that have started again, with the argument "again". With "saves", there is a backup at each average. Prints each step, and
the results as one line of JSON.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Dict, Iterator

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.elastic.task import label
from tests.cluster.elastic.worker import main, tell_result, wait_for_others
from tests.cluster.local_steps.task import BATCH, ELASTIC, EPOCHS, make_model, make_rows
from tests.support.replicas import require_equal_everywhere

_SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}


class Steps(tf.keras.callbacks.Callback):
    """Tells which steps this worker takes, brings about its fault, and lets it wait for others."""

    def __init__(self, strategy: tfs.CollectiveAllReduceStrategy, plan: Dict[str, Any], again: bool) -> None:
        super().__init__()
        self._strategy, self._plan, self._size = strategy, plan, 3
        self._kind, self._at = ["", 0] if again else plan["faults"].get(str(strategy.rank), ["", 0])
        self._of_epoch = -(-len(make_rows(ELASTIC[plan["program"]].repeats)[0]) // BATCH)
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        step = self._epoch * self._of_epoch + batch + 1
        print("step", step, flush=True)
        if step == self._at:
            os.kill(os.getpid(), _SIGNALS[self._kind])
        if 0 < self._plan["meet"] <= step:
            wait_for_others(self._strategy, self._size, self._plan)


def run_loop(
    strategy: tfs.CollectiveAllReduceStrategy, model: tf.keras.Model, rows: Any, steps: Steps
) -> None:
    """Trains as `fit` does, but counts the rows of a worker as one."""

    def on_replica(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(tf.square(model(x, training=True) - y), axis=1)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    state = tfs.ElasticState(strategy, [model], batch=0)

    def batches() -> Iterator[Any]:
        data = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH).repeat(EPOCHS).skip(state.batch)
        yield from strategy.experimental_distribute_dataset(data)

    def loop() -> None:
        step = tf.function(lambda batch: strategy.run(on_replica, args=batch))
        for batch in batches():
            steps.on_train_batch_begin(state.batch)
            with strategy.local_step(model):
                step(batch)
            state.batch += 1
            state.commit()
        strategy.average_weights(model)

    state.run(loop)


def train(plan: Dict[str, Any], again: bool) -> None:
    program = ELASTIC[plan["program"]]
    options = tfs.CommunicationOptions(timeout=60)
    strategy = tfs.CollectiveAllReduceStrategy(options, elastic=tfs.Elastic(), local_steps=program.options)
    with strategy.scope():
        model = make_model(program)
        model.compile(model.optimizer, "mse", metrics=[label])
    steps, (x, y) = Steps(strategy, plan, again), make_rows(program.repeats)
    history: Dict[str, Any] = {}
    if program.in_loop:
        run_loop(strategy, model, (x, y), steps)
    else:
        given = {"batch_size": BATCH, "shuffle": False, "epochs": EPOCHS, "verbose": 0}
        backups = [tfs.callbacks.BackupAndRestore(Path(plan["folder"], "backup"), save_freq=1)]
        callbacks = [steps, *(backups if plan["saves"] else [])]
        history = model.fit(x, y, callbacks=callbacks, **given).history
    require_equal_everywhere(strategy, model.weights)
    tell_result(strategy, model, history)


if __name__ == "__main__":
    main(train)
