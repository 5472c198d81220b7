"""One worker of test_hosts.py: two collectives side by side, which the workers submit in different orders."""

from __future__ import annotations

import sys
import time

import tensorflow as tf

import tf_strategies as tfs
from tests.support.processes import wait_until

_SECONDS = 30


def main(elements: str) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    group = strategy._group

    def after_the_other(value: tf.Tensor) -> tf.Tensor:
        """Waits until this worker has submitted the collective that it begins with."""
        first = f"sum {group.rank}"
        wait_until(
            lambda: any(each.name == first for each in strategy.recorded_collectives()), _SECONDS, first
        )
        return value

    @tf.function
    def both() -> list[tf.Tensor]:
        sums = []
        for number in range(2):
            value = tf.fill([int(elements)], float(number + 1))
            if number != group.rank:
                value = tf.ensure_shape(tf.py_function(after_the_other, [value], tf.float32), value.shape)
            sums.append(group.all_reduce([value], name=f"sum {number}")[0])
        return sums

    start = time.monotonic()
    results = [float(tf.reduce_max(total)) for total in both()]
    assert results == [2.0, 4.0], results
    print("seconds", time.monotonic() - start, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
