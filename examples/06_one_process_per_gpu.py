"""Runs one process for each GPU, on hosts with several GPUs. Every worker sees only its own GPU.

For two hosts with four GPUs each, run this on both, in any order:

    tfs-run --workers 8 --hosts 10.0.0.1,10.0.0.2 --port-base 2222 --gpus-per-worker 1 examples/06_one_process_per_gpu.py

tfs-run finds out which host it is on, and starts the four workers of this host. It sets TF_CONFIG for each,
and its GPU in CUDA_VISIBLE_DEVICES. Without tfs-run, start eight processes with

    TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.1:2223", "10.0.0.1:2224", "10.0.0.1:2225",
                                       "10.0.0.2:2226", "10.0.0.2:2227", "10.0.0.2:2228", "10.0.0.2:2229"]},
                "task": {"type": "worker", "index": 5}}'

where "index" is 0 to 3 on the first host and 4 to 7 on the second, and with CUDA_VISIBLE_DEVICES=0, 1, 2 or 3
(here 1: the second GPU of the second host). examples/slurm and examples/kubernetes do the same on SLURM and
Kubernetes. On a machine without a GPU:

    tfs-run --workers 2 examples/06_one_process_per_gpu.py

Each worker copies its gradients to pinned memory of the host, where the workers add them up, and the sums back to
its GPU, while the GPU computes: see docs/gpus.md.

Each worker prints its device, and the chief prints the accuracy at the end. It takes about 20 seconds:

    worker 0 of 2 on your-host: replica 0 of 2, on CPU
    worker 1 of 2 on your-host: replica 1 of 2, on CPU
    test accuracy 0.96 with 2 processes of one device each
"""

from __future__ import annotations

import argparse
import os
import socket

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs


def devices() -> str:
    """What this process computes on, in words."""
    count = len(tf.config.list_physical_devices("GPU"))
    if not count:
        return "CPU"
    return f"{count} GPU (CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'not set: all')})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-per-gpu", type=int, default=32)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)  # the same on all workers, so that they shuffle alike and split each batch
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.data / 16.0).astype("float32"), digits.target, test_size=360, random_state=0
    )

    strategy = tfs.CollectiveAllReduceStrategy()
    replica = strategy.rank * strategy.num_replicas_in_sync // strategy.size
    print(
        f"worker {strategy.rank} of {strategy.size} on {socket.gethostname()}: "
        f"replica {replica} of {strategy.num_replicas_in_sync}, on {devices()}",
        flush=True,
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((64,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    batch = arguments.batch_per_gpu * strategy.num_replicas_in_sync
    model.fit(x_train, y_train, batch_size=batch, epochs=arguments.epochs, verbose=0)
    _, accuracy = model.evaluate(x_test, y_test, batch_size=batch, verbose=0)
    if strategy.rank == 0:
        print(f"test accuracy {accuracy:.2f} with {strategy.size} processes of one device each")


if __name__ == "__main__":
    main()
