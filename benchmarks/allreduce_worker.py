"""One rank of a contestant of benchmarks.allreduce that is a TensorFlow op: ours, TensorFlow's RING, or Horovod's.

All calls of an order are one loop inside one tf.function.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Callable

import tensorflow as tf

from benchmarks import horovod_ranks
from benchmarks.contestant import Calls, serve, total

_START_SECONDS = 120

Step = Callable[[tf.Tensor], tf.Tensor]


def looped(step: Step, rank: int, ranks: int) -> Callable[[int], Calls]:
    """What `serve` prepares a size with."""

    def prepare(count: int) -> Calls:
        @tf.function
        def loop(x: tf.Tensor, calls: tf.Tensor) -> tf.Tensor:
            for _ in tf.range(calls):
                x = step(x)
            return x

        summed = loop(tf.fill([count], float(rank + 1)), tf.constant(1))
        if not bool(tf.reduce_all(summed == total(ranks))):
            raise RuntimeError(f"the sum of {count} elements is wrong: {summed}, not {total(ranks)}")
        x = tf.zeros([count])
        return lambda calls: loop(x, tf.constant(calls))

    return prepare


def serve_ours(folder: Path, transport: str) -> None:
    from tf_strategies.cluster import Cluster
    from tf_strategies.native import collective_ops
    from tf_strategies.native.communicator import Communicator
    from tf_strategies.options import CommunicationOptions

    cluster = Cluster.from_tf_config()
    if cluster is None:
        raise SystemExit("benchmarks.allreduce_worker is started by benchmarks.allreduce")
    options = CommunicationOptions(transport=transport, timeout=_START_SECONDS)
    group = Communicator.connect(cluster, options)
    serve(
        folder,
        group.rank,
        barrier=lambda: collective_ops.barrier(communicator=group, name="start together"),
        prepare=looped(
            lambda x: collective_ops.all_reduce([x], communicator=group, name="benchmark")[0],
            group.rank,
            group.size,
        ),
    )
    group.close()


def serve_ring(folder: Path) -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    rank, ranks = config["task"]["index"], len(config["cluster"]["worker"])
    implementation = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def replica(x: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(x))

    prepare = looped(lambda x: strategy.run(replica, args=(x,)), rank, ranks)
    meet = prepare(1)
    serve(folder, rank, barrier=lambda: meet(1), prepare=prepare)


def serve_horovod(folder: Path, rank: int, ranks: int) -> None:
    import horovod.tensorflow as hvd

    horovod_ranks.join(folder, rank, ranks)
    hvd.init()
    prepare = looped(lambda x: hvd.allreduce(x, op=hvd.Sum, name="benchmark"), rank, ranks)
    meet = prepare(1)
    serve(folder, rank, barrier=lambda: meet(1), prepare=prepare)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("implementation", choices=["ours", "ring", "horovod"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--transport", default="auto")
    arguments = parser.parse_args()
    if arguments.implementation == "ours":
        serve_ours(arguments.folder, arguments.transport)
    elif arguments.implementation == "ring":
        serve_ring(arguments.folder)
    else:
        serve_horovod(arguments.folder, arguments.rank, arguments.ranks)


if __name__ == "__main__":
    main()
    # Servers and background threads of TensorFlow and Horovod would hold the process up.
    os._exit(0)
