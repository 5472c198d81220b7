"""Runs one process for each host, on hosts with several GPUs. The GPUs of a host are replicas of one worker.

For two hosts with four GPUs each, which are eight replicas, run this on both, in any order:

    tfs-run --workers 2 --hosts 10.0.0.1,10.0.0.2 --port-base 2222 examples/07_one_process_per_host.py

Without tfs-run, start one process on each host with

    TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2223"]}, "task": {"type": "worker", "index": 0}}'

and with "index": 1 on the second host. A worker uses all GPUs that it sees, or those of
`CollectiveAllReduceStrategy(devices=["GPU:0", "GPU:1"])`. Gradients are added up on the first GPU of the host,
copied to its pinned memory, added up between hosts, and copied back: see docs/gpus.md. This sends less than a
process for each GPU, but one Python process and one input pipeline feed all GPUs. All workers need the same
number of GPUs. Without GPUs, logical CPU devices take their place:

    tfs-run --workers 2 examples/07_one_process_per_host.py --cpu-replicas 4

Each worker prints its replicas, and the chief prints the accuracy at the end. It takes about 30 seconds:

    worker 0 of 2: replicas 0 to 3 of 8 on CPU:0 CPU:1 CPU:2 CPU:3
    worker 1 of 2: replicas 4 to 7 of 8 on CPU:0 CPU:1 CPU:2 CPU:3
    test accuracy 0.96 with 8 replicas in 2 processes
"""

from __future__ import annotations

import argparse

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs


def find_devices(cpu_replicas: int) -> list:
    """All GPUs of this host; as many logical CPU devices as asked for where there is none."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return [f"GPU:{index}" for index in range(len(gpus))]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cpu_replicas)
    return [f"CPU:{index}" for index in range(cpu_replicas)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-per-replica", type=int, default=8)
    parser.add_argument("--cpu-replicas", type=int, default=4, help="replicas where there is no GPU")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)  # the same on all workers, so that they shuffle alike and split each batch
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.data / 16.0).astype("float32"), digits.target, test_size=360, random_state=0
    )

    devices = find_devices(arguments.cpu_replicas)
    strategy = tfs.CollectiveAllReduceStrategy(devices=devices)
    first = strategy.rank * len(devices)
    print(
        f"worker {strategy.rank} of {strategy.size}: replicas {first} to {first + len(devices) - 1} of "
        f"{strategy.num_replicas_in_sync} on {' '.join(devices)}",
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
    batch = arguments.batch_per_replica * strategy.num_replicas_in_sync
    model.fit(x_train, y_train, batch_size=batch, epochs=arguments.epochs, verbose=0)
    _, accuracy = model.evaluate(x_test, y_test, batch_size=batch, verbose=0)
    if strategy.rank == 0:
        print(
            f"test accuracy {accuracy:.2f} with {strategy.num_replicas_in_sync} replicas in {strategy.size} processes"
        )


if __name__ == "__main__":
    main()
