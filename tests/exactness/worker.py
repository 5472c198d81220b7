"""One process of the exactness tests: trains programs and keeps what came out.

python -m tests.exactness.worker FOLDER REPLICAS [PROGRAM ...]

REPLICAS is the number of local replicas, or "plain" for Keras without a strategy.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.exactness.programs import PROGRAMS, Program
from tests.exactness.programs.registry import BATCH, keras

__all__ = ["main"]


def train(program: Program, scope: Any) -> Dict[str, Any]:
    """Returns the weights and the logs after training."""
    keras.utils.set_random_seed(7)
    with scope:
        trial = program.make()
    if trial.run is not None:
        logs = trial.run()
    else:
        fit = {
            "batch_size": None if isinstance(trial.fit["x"], tf.data.Dataset) else BATCH,
            "shuffle": False,
            **trial.fit,
        }
        logs = dict(trial.model.fit(verbose=0, **fit).history)
    if trial.evaluate is not None:
        found = trial.model.evaluate(batch_size=BATCH, verbose=0, return_dict=True, **trial.evaluate)
        logs.update({f"evaluated_{key}": [value] for key, value in found.items()})
    return {
        "weights": [np.asarray(each).astype("float64").tolist() for each in _weights(trial.model)],
        "logs": {key: np.asarray(value).astype("float64").tolist() for key, value in logs.items()}
        if trial.logs
        else {},
    }


def _weights(model: Any) -> list:
    """Returns the values of all weights but those of metrics, which Keras 2 lists among them."""
    of_metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
    return [weight.numpy() for weight in model.weights if id(weight) not in of_metrics]


def main(folder: str, replicas: str, *names: str) -> None:
    if replicas == "plain":
        strategy, name = None, "plain"
    else:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * int(replicas),
        )
        strategy = tfs.CollectiveAllReduceStrategy(devices=[f"CPU:{index}" for index in range(int(replicas))])
        name = f"worker{strategy.rank}"
    found = {}
    for each in names or PROGRAMS:
        program = PROGRAMS[each]
        if program.runs:
            start = time.monotonic()
            scope = contextlib.nullcontext() if strategy is None else strategy.scope()
            found[each] = train(program, scope)
            print(f"trained {each} {time.monotonic() - start:.1f} s", flush=True)
            keras.backend.clear_session()
    Path(folder, f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
