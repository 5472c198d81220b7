"""Times all-reduces of tensors on GPUs. Run it as every worker of a cluster, one GPU each:

    tfs-run --workers 2 -m benchmarks.gpu_all_reduce
    TF_STRATEGIES_CUDA=0 tfs-run --workers 2 -m benchmarks.gpu_all_reduce

The second command does without the code for GPUs: TensorFlow copies to the host and back. Worker 0 prints CSV: bytes, the
median, least and largest milliseconds, and the bytes that were staged through pinned memory.
"""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_strategies as tfs

_REPEATS = flags.DEFINE_integer("repeats", 20, "timed all-reduces of each size")
_SIZES = flags.DEFINE_list("bytes", ["4096", "262144", "4194304", "67108864", "268435456"], "bytes to reduce")
_TENSORS = flags.DEFINE_integer("tensors", 8, "tensors of each all-reduce, as the gradients of a model")


def main(argv: list[str]) -> None:
    del argv
    strategy = tfs.CollectiveAllReduceStrategy()
    if strategy.rank == 0:
        print("bytes,median_ms,min_ms,max_ms,staged_bytes", flush=True)
    for size in map(int, _SIZES.value):
        elements = size // 4 // _TENSORS.value

        @tf.function
        def step(values: list[tf.Tensor]) -> tf.Tensor:
            def replica(*values: tf.Tensor) -> tf.Tensor:
                context = tf.distribute.get_replica_context()
                totals = context.all_reduce(tf.distribute.ReduceOp.SUM, list(values))
                return tf.add_n([total[0] for total in totals])

            return strategy.run(replica, args=values)

        values = [tf.fill([elements], float(strategy.rank + 1)) for _ in range(_TENSORS.value)]
        expected = _TENSORS.value * strategy.size * (strategy.size + 1) / 2
        times, before = [], strategy.communication_stats().bytes_staged
        for number in range(-3, _REPEATS.value):
            strategy.barrier()
            start = time.perf_counter()
            found = float(step(values))
            if number >= 0:
                times.append((time.perf_counter() - start) * 1e3)
            if found != expected:
                raise SystemExit(f"the sum is {found}; it should be {expected}")
        staged = strategy.communication_stats().bytes_staged - before
        if strategy.rank == 0:
            middle, least, most = np.median(times), min(times), max(times)
            print(f"{size},{middle:.3f},{least:.3f},{most:.3f},{staged // (_REPEATS.value + 3)}", flush=True)
    strategy.close()


if __name__ == "__main__":
    app.run(main)
