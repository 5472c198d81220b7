"""One worker of benchmarks.between_hosts, as TF_CONFIG says; the first writes seconds.json."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_strategies.cluster import Cluster
from tf_strategies.native import collective_ops
from tf_strategies.native.communicator import Communicator
from tf_strategies.options import CommunicationOptions

_FEWEST_CALLS, _BYTES = 5, 16 << 20


def seconds_a_call(group: Communicator, size: int) -> float:
    x = tf.fill([size // 4], float(group.rank + 1))
    calls = max(_FEWEST_CALLS, _BYTES // size)

    @tf.function
    def loop(y: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(calls):
            (y,) = collective_ops.all_reduce([y], communicator=group, reduction="mean", name="benchmark")
        return y

    found = np.unique(loop(x).numpy())
    if found.tolist() != [(group.size + 1) / 2]:
        raise SystemExit(f"the mean of 1 to {group.size} is wrong: {found}")
    collective_ops.barrier(communicator=group, name="start together")
    start = time.perf_counter()
    loop(x).numpy()
    return (time.perf_counter() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithms", type=lambda text: text.split(","), required=True)
    parser.add_argument("--bytes", type=lambda text: [int(part) for part in text.split(",")], required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    cluster = Cluster.from_tf_config()
    if cluster is None:
        raise SystemExit("benchmarks.between_hosts starts this, and sets TF_CONFIG")
    found: dict[int, dict[str, list[float]]] = {
        size: {name: [] for name in arguments.algorithms} for size in arguments.bytes
    }
    for _ in range(arguments.rounds):
        for algorithm in arguments.algorithms:
            group = Communicator.connect(cluster, CommunicationOptions(algorithm=algorithm, timeout=120))
            for size in arguments.bytes:
                found[size][algorithm].append(seconds_a_call(group, size))
            collective_ops.barrier(communicator=group, name="all measured")
            group.close()
    if cluster.rank == 0:
        (arguments.results / "seconds.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
