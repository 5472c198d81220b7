"""Hosts with several GPUs, one process for each host: its GPUs are replicas of one worker.

Two hosts with four GPUs each, eight replicas; on both hosts, in any order:

    tfs-run --workers 2 --hosts 10.0.0.1,10.0.0.2 --port-base 2222 examples/07_one_process_per_host.py

or, without tfs-run, one process on each with, in full,

    TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2223"]}, "task": {"type": "worker", "index": 0}}'

and "index": 1 on the second. A worker takes all GPUs it sees; `CollectiveAllReduceStrategy(devices=["GPU:0", "GPU:1"])`
takes some. Gradients are added on the host first, and then between hosts: less to send than with a process for each GPU,
but one Python and one input pipeline feed all. All workers need equally many GPUs. Where there is none, logical CPU devices
stand in for them:

    tfs-run --workers 2 examples/07_one_process_per_host.py --cpu-replicas 4

Each worker names its replicas, and the chief ends with the accuracy; about 30 seconds:

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
