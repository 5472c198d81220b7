"""One of the workers of test_gpus.py, each of which sees one GPU or none.

python -m tests.cluster.native.gpu_worker REPLICAS CHECK...
Several replicas share the GPU as logical devices.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.compression.compression_worker import (
    check_a_gradient_that_is_not_finite_leaves_no_trace,
    check_deep_gradient_compression,
    check_fit_with_every_compressor,
    check_half_rounds_sums,
    check_nothing_is_lost,
    check_top_k_with_error_feedback,
)
from tests.support.checks import run_checks
from tests.support.replicas import require_equal_everywhere
from tf_strategies.native.gpus import use_gpus

keras = tf.keras
OF_COMPRESSION = [
    check_a_gradient_that_is_not_finite_leaves_no_trace,
    check_deep_gradient_compression,
    check_fit_with_every_compressor,
    check_half_rounds_sums,
    check_nothing_is_lost,
    check_top_k_with_error_feedback,
]
ELEMENTS = (1, 3, 1000, 16_384, 100_000, 5_000_003)  # of a tensor, small and large


def summed(strategy: Any, values: list) -> list:
    """The sums over workers of what each has, as training forms them."""

    def replica() -> list:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, [tf.constant(value) for value in values])

    totals = tf.function(lambda: strategy.run(replica))()
    return [strategy.experimental_local_results(total)[0] for total in totals]


def replicas_of(strategy: Any) -> int:
    return len(strategy.extended.worker_devices)


def check_sums_are_exact_for_every_dtype_and_size(strategy: Any) -> None:
    for dtype in ("float32", "float64", "float16", "int64", "int32"):
        mine = [((np.arange(n) % 7 + 1) * (strategy.rank + 1)).astype(dtype) for n in ELEMENTS]
        factor = replicas_of(strategy) * sum(range(1, strategy.size + 1))
        for found, n in zip(summed(strategy, mine), ELEMENTS):
            np.testing.assert_array_equal(found, ((np.arange(n) % 7 + 1) * factor).astype(dtype))


def check_the_path_is_the_one_for_gpus(strategy: Any) -> None:
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    assert use_gpus() == has_gpu
    before = strategy.communication_stats().bytes_staged
    (total,) = summed(strategy, [np.ones(1000, "float32")])
    assert ("GPU" in total.device) == has_gpu, total.device
    assert strategy.communication_stats().bytes_staged - before == (4000 if has_gpu else 0)


def check_sums_follow_what_the_gpu_still_computes(strategy: Any) -> None:
    """A long computation before each sum, and one after it that overwrites the inputs."""
    size = 2000

    def replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        value = tf.ones([size, size]) * (strategy.rank + 1.0)
        totals = []
        for _ in range(5):
            for _ in range(20):
                value = tf.sqrt(value * value)
            totals.append(context.all_reduce(tf.distribute.ReduceOp.SUM, value))
            value = totals[-1] / strategy.num_replicas_in_sync
        return tf.stack([tf.reduce_min(tf.stack(totals)), tf.reduce_max(tf.stack(totals))])

    step = tf.function(lambda: strategy.run(replica))
    whole = replicas_of(strategy) * sum(range(1, strategy.size + 1))
    for _ in range(5):
        for found in strategy.experimental_local_results(step()):
            np.testing.assert_allclose(found, [whole, whole], rtol=1e-5)


def check_fit_equals_one_process(strategy: Any) -> None:
    generator = np.random.default_rng(2)
    x = generator.standard_normal((512, 20)).astype("float32")
    y = generator.standard_normal((512, 3)).astype("float32")

    def trained(scope: Any) -> Any:
        keras.utils.set_random_seed(3)
        with scope:
            layers = [keras.layers.Input((20,)), keras.layers.Dense(300, "relu"), keras.layers.Dense(3)]
            model = keras.Sequential(layers)
            model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", jit_compile=False)
        model.fit(x, y, batch_size=64, epochs=3, shuffle=False, verbose=0)
        return model

    model = trained(strategy.scope())
    require_equal_everywhere(strategy, model.weights)
    alone = trained(tf.distribute.OneDeviceStrategy("/cpu:0").scope())
    for found, expected in zip(model.get_weights(), alone.get_weights()):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def main() -> None:
    replicas = int(sys.argv[1])
    for gpu in tf.config.list_physical_devices("GPU"):
        if replicas == 1:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            shares = [tf.config.LogicalDeviceConfiguration(memory_limit=4096)] * replicas
            tf.config.set_logical_device_configuration(gpu, shares)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    strategy = tfs.CollectiveAllReduceStrategy()
    run_checks(globals(), strategy, only=sys.argv[2:])
    strategy.close()


if __name__ == "__main__":
    main()
