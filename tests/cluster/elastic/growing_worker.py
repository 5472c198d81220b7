"""One worker of test_growth.py: `fit` in a group that grows, given as JSON.

    {"folder": PATH, "meetings": [[FIRST, LAST, SIZE], ...], "faults": {"TASK": [["kill" | "terminate", BATCH], ...]},
     "batch": "global" | "per_worker"}

From batch FIRST to LAST of `fit`, from 1, the workers wait until they are SIZE. A worker "worker 2" brings about the first of its
faults in its first process, and so on: a further process has the argument "again", once for each before it. Prints the results
as one line of JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.elastic.fit_worker import Fault
from tests.cluster.elastic.task import BATCHES, FIT, make_model, make_rows, make_schedule
from tests.cluster.elastic.worker import main, tell_result, wait_for_others
from tf_strategies.keras import scope_check


class Places(tf.keras.callbacks.Callback):
    """Does at places of `fit` what the plan says. They count from its begin, also for a worker that has joined."""

    def __init__(self, strategy: tfs.CollectiveAllReduceStrategy, plan: Dict[str, Any], run: int) -> None:
        super().__init__()
        faults: List[Any] = plan["faults"].get(strategy.name_of(strategy.rank).partition(" (")[0], [])
        self._strategy, self._plan, self._epoch = strategy, plan, 0
        self._fault = faults[run] if run < len(faults) else ["", 0]

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        place = self._epoch * BATCHES + batch + 1
        for first, last, size in self._plan["meetings"]:
            if first <= place <= last:
                wait_for_others(self._strategy, size, self._plan)
        kind, at = self._fault
        if place == at:
            Fault(kind, at, Path())._reach(at)


def require_scope() -> None:
    """Requires that a model from outside of the scope is refused, also while no other worker has joined."""
    try:
        scope_check.refuse_outside(tf.keras, make_model())
    except tfs.OptionsError:
        return
    raise ValueError("a model from outside of the scope could be trained")


def train(plan: Dict[str, Any], again: bool) -> None:
    del again
    tf.keras.utils.set_random_seed(1)
    options = tfs.CommunicationOptions(timeout=60)
    strategy = tfs.CollectiveAllReduceStrategy(
        options, elastic=tfs.Elastic(max_workers=3, batch=plan["batch"])
    )
    if strategy.size == 1:
        require_scope()
    with strategy.scope():
        model = make_model(normalized=True)
    x, y = make_rows()
    history = model.fit(
        x,
        y,
        validation_data=(x, y),
        callbacks=[Places(strategy, plan, sys.argv.count("again")), make_schedule()],
        **FIT,
    )
    tell_result(strategy, model, history.history)


if __name__ == "__main__":
    main(train)
