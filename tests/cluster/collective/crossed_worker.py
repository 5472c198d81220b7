"""One worker of test_hosts.py: two collectives side by side, which the workers submit in different orders."""

from __future__ import annotations

import sys
import time

import tensorflow as tf

import tf_strategies as tfs

_LATER_SECONDS = 0.3


def main(elements: str) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    group = strategy._group

    def wait(value: tf.Tensor) -> tf.Tensor:
        time.sleep(_LATER_SECONDS)
        return value

    @tf.function
    def both() -> list[tf.Tensor]:
        sums = []
        for number in range(2):
            value = tf.fill([int(elements)], float(number + 1))
            if number != group.rank:
                value = tf.ensure_shape(tf.py_function(wait, [value], tf.float32), value.shape)
            sums.append(group.all_reduce([value], name=f"sum {number}")[0])
        return sums

    start = time.monotonic()
    results = [float(tf.reduce_max(total)) for total in both()]
    assert results == [2.0, 4.0], results
    print("seconds", time.monotonic() - start, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
