"""Runs `tf.estimator.train_and_evaluate` on a chief, two workers, a parameter server and an evaluator, with TensorFlow 2.15.

    tfs-run --chief --workers 2 --ps 1 --evaluator examples/12_estimator.py
    tfs-run --chief --workers 2 --ps 1 --evaluator examples/12_estimator.py --strategy async
    tfs-run --chief --workers 2 --evaluator examples/12_estimator.py --strategy collective

A model function learns handwritten digits (scikit-learn's `load_digits`). The strategy is an argument of the
RunConfig; everything else is plain Estimator. The chief and the workers train until they have made 200 steps
together. The chief writes the checkpoints. The evaluator, which does not train, evaluates each checkpoint,
exports the model of the last one, and ends. It prints:

    last checkpoint                           model.ckpt-200
    test accuracy of the exported model       0.97
    exported model                            /tmp/tf_strategies-estimator-4c0e6d42/export/digits/1795360000

On several hosts, start `python examples/12_estimator.py --model-dir FOLDER` on each. FOLDER must be the same
for the chief and the evaluator (a shared file system, or a bucket); the other tasks do not write there. This
is TF_CONFIG of the chief:

    TF_CONFIG='{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "10.0.0.1:2224"], "ps": ["10.0.0.1:2225"]},
                "task": {"type": "chief", "index": 0}}'

of worker 0:

    TF_CONFIG='{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "10.0.0.1:2224"], "ps": ["10.0.0.1:2225"]},
                "task": {"type": "worker", "index": 0}}'

of worker 1:

    TF_CONFIG='{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "10.0.0.1:2224"], "ps": ["10.0.0.1:2225"]},
                "task": {"type": "worker", "index": 1}}'

of the parameter server:

    TF_CONFIG='{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "10.0.0.1:2224"], "ps": ["10.0.0.1:2225"]},
                "task": {"type": "ps", "index": 0}}'

of the evaluator, which is not in the cluster, because no process connects to it:

    TF_CONFIG='{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "10.0.0.1:2224"], "ps": ["10.0.0.1:2225"]},
                "task": {"type": "evaluator", "index": 0}}'

With plain `python` it trains, evaluates and exports in one process. Takes 20 seconds on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tf_strategies as tfs

STRATEGIES = {
    "async": "AsyncParameterServerStrategy",
    "sync": "SyncReplicasStrategy",
    "collective": "CollectiveAllReduceStrategy",
}
BATCH = 32  # of one worker


def load() -> tuple:
    """Images and labels to train on, and to test with."""
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), digits.target[order].astype("int64")
    return (images[:1440], labels[:1440]), (images[1440:], labels[1440:])


def train_input_fn(input_context=None) -> tf.data.Dataset:
    images, labels = load()[0]
    data = tf.data.Dataset.from_tensor_slices(({"image": images}, labels))
    if input_context is not None:  # each worker trains on its own share
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.shuffle(len(labels), seed=1).repeat().batch(BATCH)


def test_input_fn() -> tf.data.Dataset:
    images, labels = load()[1]
    return tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).batch(len(labels))


def serving_input_fn():
    image = tf.compat.v1.placeholder(tf.float32, [None, 64], "image")
    return tfs.estimator.export.ServingInputReceiver({"image": image}, {"image": image})


def model_fn(features, labels, mode):
    hidden = tf.keras.layers.Dense(128, "relu")(features["image"])
    logits = tf.keras.layers.Dense(10)(hidden)
    digit = tf.argmax(logits, axis=1)
    if mode == tfs.estimator.ModeKeys.PREDICT:
        return tfs.estimator.EstimatorSpec(mode, predictions={"digit": digit})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tfs.estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, digit)
        return tfs.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.05, momentum=0.9)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tfs.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def model_dir_of(config: dict) -> str:
    """A folder for what one tfs-run starts: its ports are others each time."""
    if not config:
        return tempfile.mkdtemp(prefix="tf_strategies-estimator-")
    cluster = zlib.crc32(json.dumps(config["cluster"], sort_keys=True).encode())
    return str(Path(tempfile.gettempdir(), f"tf_strategies-estimator-{cluster:08x}"))


def report(name: str, value: object) -> None:
    print(f"{name:<42}{value}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="sync")
    parser.add_argument("--max-steps", type=int, default=200, help="of all workers together")
    parser.add_argument("--model-dir", help="by default a new one in the temporary folder of this machine")
    parser.add_argument("--verbose", action="store_true", help="show what TensorFlow logs and warns of")
    arguments = parser.parse_args()
    # Estimator warns of itself in a hundred lines; errors are shown either way.
    tf.compat.v1.logging.set_verbosity("INFO" if arguments.verbose else "ERROR")
    if not arguments.verbose:
        warnings.filterwarnings("ignore", category=UserWarning, module="tensorflow")
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    role = config.get("task", {}).get("type")
    model_dir = arguments.model_dir or model_dir_of(config)

    train_spec = tfs.estimator.TrainSpec(train_input_fn, max_steps=arguments.max_steps)
    exporter = tfs.estimator.FinalExporter("digits", serving_input_fn)
    eval_spec = tfs.estimator.EvalSpec(
        test_input_fn, steps=None, exporters=[exporter], start_delay_secs=1, throttle_secs=1
    )
    strategy = getattr(tfs, STRATEGIES[arguments.strategy])()
    # A server never comes here: it serves, and ends when the workers are done.

    run_config = tfs.estimator.RunConfig(
        model_dir=model_dir, train_distribute=strategy, save_checkpoints_steps=50, tf_random_seed=1
    )
    estimator = tfs.estimator.Estimator(model_fn, config=run_config)
    tfs.estimator.train_and_evaluate(estimator, train_spec, eval_spec)

    if role != "evaluator" and strategy.rank == 0:
        report("last checkpoint", Path(estimator.latest_checkpoint()).name)
    if role == "evaluator" or not config:
        exported = max(Path(model_dir, "export", "digits").iterdir())
        images, labels = load()[1]
        predict = tf.saved_model.load(str(exported)).signatures["serving_default"]
        accuracy = np.mean(predict(image=tf.constant(images))["digit"].numpy() == labels)
        report("test accuracy of the exported model", f"{accuracy:.2f}")
        report("exported model", exported)


if __name__ == "__main__":
    main()
