"""One of several workers that make and close strategies, one after the other, and say what they hold after each.

python -m tests.soak.closing_worker '{"warm": 5, "strategies": 30}'
"""

from __future__ import annotations

import dataclasses
import json
import sys

import tensorflow as tf

import tf_strategies as tfs
from tests.soak.resources import measure


def use_one() -> float:
    """Makes a strategy, sums a variable over its replicas in a function, closes it."""
    strategy = tfs.CollectiveAllReduceStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.ones([1000]) * (strategy.rank + 1))

    @tf.function
    def step():
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(variable))
        )

    total = float(step())
    strategy.close()
    return total / strategy.size


def main(plan: dict) -> None:
    for number in range(plan["warm"] + plan["strategies"]):
        total = use_one()
        if total != 1000.0:  # the initial value is that of worker 0, on all
            raise AssertionError(f"strategy {number}: the sum of a thousand ones is {total}")
        phase = "warm" if number < plan["warm"] else "flat"
        print("sample", phase, json.dumps(dataclasses.asdict(measure(number))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
