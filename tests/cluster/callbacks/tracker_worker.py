"""One of two workers of test_trackers.py: the chief alone writes to Weights & Biases and to MLflow, as docs/calls.md says.

python -m tests.cluster.callbacks.tracker_worker EPOCHS
"""

from __future__ import annotations

import json
import sys

import keras
import mlflow
import numpy as np
import wandb
from mlflow.keras import MlflowCallback
from wandb.integration.keras import WandbMetricsLogger

import tf_strategies as tfs


def main() -> None:
    strategy = tfs.CollectiveAllReduceStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    callbacks = []
    if strategy.is_chief:
        wandb.init(project="digits")
        mlflow.start_run()
        callbacks += [WandbMetricsLogger(), MlflowCallback()]
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    targets = rows.sum(axis=1)
    history = model.fit(
        rows, targets, batch_size=16, epochs=int(sys.argv[1]), verbose=0, callbacks=callbacks
    ).history
    found = {"history": history}
    if strategy.is_chief:
        found["wandb"] = dict(wandb.run.summary)
        wandb.finish()
        run = mlflow.active_run().info.run_id
        mlflow.end_run()
        client = mlflow.MlflowClient()
        found["mlflow"] = {
            name: [each.value for each in client.get_metric_history(run, name)] for name in history
        }
    print("found", json.dumps(found, default=float), flush=True)


if __name__ == "__main__":
    main()
