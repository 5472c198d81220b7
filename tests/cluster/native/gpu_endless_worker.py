"""One of two workers of test_gpus.py that sum on their GPU until one is lost."""

from __future__ import annotations

import itertools
import sys

import tensorflow as tf

import tf_strategies as tfs


def main() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))

    @tf.function
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return tf.reduce_sum(context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones([100_000])))

        return strategy.run(replica)

    try:
        for number in itertools.count():
            step().numpy()
            print(f"step {number}", flush=True)
    except tf.errors.OpError as error:
        print("LOST", error.message, flush=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
