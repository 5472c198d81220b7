"""One worker of benchmarks.allreduce: measures both implementations in turn; worker 0 writes the results."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tf_strategies.cluster import Cluster
from tf_strategies.native import collective_ops
from tf_strategies.native.communicator import Communicator
from tf_strategies.options import CommunicationOptions

_BYTES_A_LOOP = 256 << 20
_MOST_CALLS = 50

Step = Callable[[tf.Tensor], tf.Tensor]


def calls_for(size: int) -> int:
    return max(3, min(_MOST_CALLS, _BYTES_A_LOOP // size))


def looped(step: Step, calls: int) -> Step:
    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(calls):
            x = step(x)
        return x

    return loop


def ours(group: Communicator, calls: int) -> Step:
    return looped(
        lambda x: collective_ops.all_reduce([x], communicator=group, reduction="mean", name="benchmark")[0],
        calls,
    )


def ring(strategy: tf.distribute.Strategy, calls: int) -> Step:
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, tf.identity(x))

    return looped(lambda x: strategy.run(step, args=(x,)), calls)


def seconds_a_call(loop: Step, x: tf.Tensor, calls: int, group: Communicator) -> float:
    collective_ops.barrier(communicator=group, name="start together")
    start = time.perf_counter()
    loop(x).numpy()
    return (time.perf_counter() - start) / calls


def all_reduce_calls(group: Communicator) -> dict[str, int]:
    return {
        row["algorithm"]: row["calls"] for row in group.stats()["collectives"] if row["kind"] == "all_reduce"
    }


def measure(size: int, repeats: int, group: Communicator, strategy: tf.distribute.Strategy) -> dict:
    calls = calls_for(size)
    x = tf.ones([size // 4])
    loops = {"ours": ours(group, calls), "ring": ring(strategy, calls)}
    before = all_reduce_calls(group)
    for loop in loops.values():
        seconds_a_call(loop, x, calls, group)
    (algorithm,) = (name for name, count in all_reduce_calls(group).items() if count != before.get(name, 0))
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(repeats):
        for name, loop in loops.items():
            times[name].append(seconds_a_call(loop, x, calls, group))
    return {"bytes": size, "algorithm": algorithm, "transport": group.stats()["transport"], **times}


def ring_strategy(addresses: list[str], rank: int) -> tf.distribute.Strategy:
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    implementation = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ring-addresses", type=lambda text: text.split(","), required=True)
    parser.add_argument("--bytes", type=lambda text: [int(part) for part in text.split(",")], required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--transport", required=True)
    arguments = parser.parse_args()

    cluster = Cluster.from_tf_config()
    if cluster is None:
        raise SystemExit(
            "benchmarks.allreduce_worker is started by benchmarks.allreduce, which sets TF_CONFIG"
        )
    options = CommunicationOptions(algorithm=arguments.algorithm, transport=arguments.transport, timeout=120)
    strategy = ring_strategy(arguments.ring_addresses, cluster.rank)
    group = Communicator.connect(cluster, options)
    results = [measure(size, arguments.repeats, group, strategy) for size in arguments.bytes]
    collective_ops.barrier(communicator=group, name="all measured")
    if group.rank == 0:
        arguments.results.write_text(json.dumps(results))
    group.close()


if __name__ == "__main__":
    main()
