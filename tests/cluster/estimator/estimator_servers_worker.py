"""A task of test_estimator_servers.py: `train_and_evaluate` on parameter servers.

python -m tests.cluster.estimator.estimator_servers_worker STRATEGY CASE FOLDER STEPS [TIMEOUT]

STRATEGY is async, sync, backup (sync, of three workers two), compressed (sync, with top-k) or one (this process alone, without a
strategy). CASE is one of CASES, or several one after another: custom,keras. Chief and evaluator share FOLDER; a worker's is one
of its own in it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import tensorflow as tf

import tf_strategies as tfs
from tests.support import estimators

_SAVE_EVERY = 20
_SLOW_STEP = {"async": 0.09, "sync": 0.03}  # of three workers that makes 30 global steps a second
_EVALUATED_STEPS = 40
_SLOW_WORKER_SECONDS = 0.5


class Steps(tf.compat.v1.train.SessionRunHook):
    """Prints the global step that each step of this process has found."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        print(f"global step {run_values.results} at {time.monotonic():.3f}", flush=True)
        time.sleep(self._seconds)


def strategy_of(kind: str, timeout: float) -> Any:
    options = tfs.ParameterServerOptions(timeout=timeout, heartbeat_timeout=3)
    if kind == "async":
        return tfs.AsyncParameterServerStrategy(options=options)
    if kind == "sync":
        return tfs.SyncReplicasStrategy(options=options)
    if kind == "backup":
        return tfs.SyncReplicasStrategy(replicas_to_aggregate=2, options=options)
    if kind == "compressed":
        return tfs.SyncReplicasStrategy(options=options, compression=tfs.compression.TopK(0.01))
    return None


def exporters() -> list:
    def receiver() -> Any:
        x = tf.compat.v1.placeholder(tf.float32, [None, estimators.FEATURES])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    return [
        tf.estimator.FinalExporter("final", receiver),
        tf.estimator.BestExporter("best", receiver, event_file_pattern="eval/*.tfevents.*"),
    ]


def train(
    strategy: Any,
    folder: Path,
    steps: int,
    make: Callable[[Any], Any],
    *,
    data: Callable,
    seconds: float,
    hooks: Callable[[Any], list] = lambda estimator: [],
    exports: bool = False,
) -> None:
    config = tf.estimator.RunConfig(
        model_dir=str(folder),
        train_distribute=strategy,
        eval_distribute=strategy,
        save_checkpoints_steps=_SAVE_EVERY,
        save_summary_steps=5,
        keep_checkpoint_max=100,
        tf_random_seed=1,
    )
    estimator = make(config)
    train_spec = tf.estimator.TrainSpec(data, max_steps=steps, hooks=[Steps(seconds), *hooks(estimator)])
    eval_spec = tf.estimator.EvalSpec(
        data,
        steps=_EVALUATED_STEPS,
        start_delay_secs=0,
        throttle_secs=1,
        exporters=exporters() if exports else None,
    )
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)


def stop_early(estimator: Any) -> list:
    """The chief ends all of the training when it has looked three times whether to; the hook asks every worker."""
    looks = []

    def should_stop() -> bool:
        looks.append(None)
        stops = _task()[0] == "chief" and len(looks) > 2
        if stops:
            print("stops all", flush=True)
        return stops

    hook = tf.estimator.experimental.make_early_stopping_hook(
        estimator, should_stop, run_every_secs=None, run_every_steps=10
    )
    return [hook]


_CUSTOM: Dict[str, Any] = {"make": estimators.custom, "data": estimators.input_fn("x")}
CASES: Dict[str, Dict[str, Any]] = {
    "custom": _CUSTOM,
    "deep": {"make": estimators.MAKERS["deep"], "data": estimators.input_fn()},
    "linear": {"make": estimators.MAKERS["linear"], "data": estimators.whole_input_fn},
    "keras": {"make": estimators.MAKERS["keras"], "data": estimators.input_fn("x")},
    "exported": {"make": estimators.exported, "data": estimators.input_fn(), "exports": True},
    "momentum": {
        "make": lambda config: estimators.custom(config, "momentum", normalize=False),
        "data": estimators.joint_input_fn,
    },
    "keras_optimizer": {
        "make": lambda config: estimators.custom(config, "keras", normalize=False),
        "data": estimators.joint_input_fn,
    },
    "by_hand": {
        "make": lambda config: estimators.custom(config, "none", normalize=False),
        "data": estimators.input_fn("x"),
    },
    "wide": {
        "make": lambda config: estimators.custom(config, "momentum", width=2048, normalize=False),
        "data": estimators.input_fn("x"),
    },
    "slow": _CUSTOM,
    "stopping": {**_CUSTOM, "hooks": stop_early},
}


def _task() -> Tuple[str, int]:
    task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"type": "chief", "index": 0}}'))["task"]
    return task["type"], task["index"]


def main() -> None:
    kind, names, where, steps = sys.argv[1:5]
    timeout = float(sys.argv[5]) if len(sys.argv) > 5 else 60.0
    strategy = strategy_of(kind, timeout)
    for each in names.split(","):
        folder = Path(where) / each
        if _task()[0] == "worker":
            folder = folder / "of worker"
        seconds = _SLOW_STEP[kind] if each == "slow" else 0.0
        if kind == "backup" and _task() == ("worker", 1):
            seconds = _SLOW_WORKER_SECONDS
        train(strategy, folder, int(steps), seconds=seconds, **CASES[each])
    if kind == "backup":
        print(strategy.gradient_counts(), flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(f"{type(error).__name__} at {time.monotonic():.3f}: {error}", flush=True)
        raise
