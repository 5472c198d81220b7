"""One worker of test_trace.py: 20 steps, of which worker 1 takes twice as long as the others; then steps until it ends.

Arguments: the seconds of a step.
"""

from __future__ import annotations

import logging
import sys
import time

import tensorflow as tf

import tf_strategies as tfs
from tests.support.endings import ended_with
from tf_strategies.native import watch

STEPS = 20
SLOW = 1


def main() -> int:
    logging.basicConfig(level=logging.WARNING)
    watch.LONG_WAIT_SECONDS = 1.0
    seconds = float(sys.argv[1])
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))

    @tf.function
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            first = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones([1000]))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, first * tf.ones([1000]))[0]

        return strategy.run(replica)

    step()
    for number in range(STEPS):
        time.sleep(seconds * (2 if strategy.rank == SLOW else 1))
        assert float(step()) == strategy.size**2
        print("step", number, flush=True)
    try:
        while True:
            time.sleep(0.01)
            step()
    except Exception as error:
        return ended_with(error)


if __name__ == "__main__":
    sys.exit(main())
