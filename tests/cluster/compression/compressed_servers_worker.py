"""A task of test_compression.py: a server, or one of three workers whose gradients are compressed on their way to servers.

python -m tests.cluster.compression.compressed_servers_worker FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server.server_models import LARGE_BYTES, Partitioner, servers_of
from tests.support.checks import run_checks
from tests.support.compressed_training import COLUMNS, RATE, ROWS, STEPS, Momentum, Training, follow
from tests.support.compression_oracle import DeepOracle, InParts, TopKOracle
from tests.support.servers import wait_for_all
from tf_strategies import compression

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
_WHOLE, _HALF = (ROWS, COLUMNS), (ROWS // 2, COLUMNS)


def check_compressed_synchronous_training_equals_numpy(folder: Path) -> None:
    deep = compression.DeepGradientCompression(0.02, momentum=0.75)
    cut = tfs.ParameterServerOptions(partitioner=Partitioner(LARGE_BYTES, max_shards=2), timeout=30)
    for name, compressor, options, make_oracle, after in (
        (
            "top",
            compression.TopK(0.03),
            None,
            lambda size: TopKOracle(size, _WHOLE, lambda step: 0.03),
            np.copy,
        ),
        (
            "deep",
            deep,
            cut,
            lambda size: InParts([DeepOracle(size, _HALF, lambda step: 0.02, 0.75, False) for _ in range(2)]),
            Momentum(0.75, False),
        ),
    ):
        strategy = tfs.SyncReplicasStrategy(compression=compressor, options=options)
        training = Training(strategy)
        kernel = training.model.layers[-1].kernel
        assert len(servers_of(kernel)) == (2 if options is cut else 1)
        wait_for_all(folder, f"{name} made", strategy.rank, strategy.size)
        follow(training, make_oracle(strategy.size), after)
        wait_for_all(folder, f"{name} followed", strategy.rank, strategy.size)
        strategy.close()


def check_nothing_that_asynchronous_workers_push_is_lost(folder: Path) -> None:
    """Whatever the order, what each pushes is what it would push alone."""
    strategy = tfs.AsyncParameterServerStrategy(compression=compression.TopK(0.03))
    training = Training(strategy)
    wait_for_all(folder, "pushes made", strategy.rank, strategy.size)
    for number in range(STEPS):
        training.step(number)
    wait_for_all(folder, "pushed", strategy.rank, strategy.size)
    expected = np.zeros(_WHOLE)
    for worker in range(strategy.size):
        oracle = TopKOracle(1, _WHOLE, lambda step: 0.03)
        expected -= RATE * sum(oracle.step([training.kernels[number][worker]]) for number in range(STEPS))
    kernel, bias = training.model.get_weights()
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(bias, -RATE * training.biases.sum(axis=(0, 1)), rtol=0, atol=1e-4)
    wait_for_all(folder, "pushes compared", strategy.rank, strategy.size)
    strategy.close()


def check_a_push_that_is_not_finite_leaves_no_trace(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(compression=compression.TopK(0.03))
    training = Training(strategy)
    wait_for_all(folder, "broken made", strategy.rank, strategy.size)
    oracle = TopKOracle(1, _WHOLE, lambda step: 0.03)
    for number in (0, 1, 2):
        for rank in range(strategy.size):
            if rank == strategy.rank == 1:
                finite = training.kernels[number][rank].copy()
                before = training.model.get_weights()
                training.kernels[number][rank][3, 4] = np.nan
                training.step(number)
                assert np.isnan(training.model.get_weights()[0]).all()
                training.model.set_weights(before)
                training.clear_slots()
                training.kernels[number][rank] = finite
                training.step(number)
                moved = (before[0] - training.model.get_weights()[0]) / RATE
                np.testing.assert_allclose(moved, oracle.step([finite]), rtol=0, atol=1e-4)
            wait_for_all(folder, f"broken {number} {rank}", strategy.rank, strategy.size)
    strategy.close()


def check_fit_with_compressed_gradients(folder: Path) -> None:
    generator = np.random.default_rng(1)
    x = generator.standard_normal((960, 12)).astype("float32")
    y = np.tanh(x @ generator.standard_normal((12, 1)).astype("float32"))
    deep = compression.DeepGradientCompression(
        0.1, momentum=0.5, clip_norm=4.0, min_elements=256, warmup_steps=8
    )
    trials: list[tuple[Any, Any]] = [
        (tfs.SyncReplicasStrategy, compression.Half("bfloat16")),
        (tfs.SyncReplicasStrategy, deep),
        (tfs.AsyncParameterServerStrategy, compression.TopK(0.1, sampled=True, min_elements=256)),
        (tfs.AsyncParameterServerStrategy, compression.SignSGD(bucket=64, min_elements=256)),
    ]
    for number, (kind, compressor) in enumerate(trials):
        strategy = kind(compression=compressor)
        keras.utils.set_random_seed(9)
        with strategy.scope():
            model = keras.Sequential(
                [keras.layers.Input((12,)), keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(1)]
            )
            model.compile(keras.optimizers.SGD(0.05), "mse")
        first = model.evaluate(x, y, batch_size=480, verbose=0)
        wait_for_all(folder, f"trial {number} made", strategy.rank, strategy.size)
        model.fit(x, y, batch_size=48, epochs=4, verbose=0)
        wait_for_all(folder, f"trial {number} fitted", strategy.rank, strategy.size)
        last = model.evaluate(x, y, batch_size=480, verbose=0)
        assert last < 0.4 * first, (compressor, first, last)
        wait_for_all(folder, f"trial {number} compared", strategy.rank, strategy.size)
        strategy.close()


def main(folder: Path) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    first = tfs.AsyncParameterServerStrategy()
    run_checks(globals(), folder)
    first.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
