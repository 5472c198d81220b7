"""One of several workers that train with compressed gradients.

python -m tests.cluster.compression.compression_worker LOCAL_REPLICAS CHECK...
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, List

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.checks import run_checks
from tests.support.compressed_training import COLUMNS, RATE, ROWS, STEPS, Momentum, Training, follow
from tests.support.compression_oracle import DeepOracle, PowerOracle, TopKOracle
from tests.support.replicas import on_cpus, require_equal_everywhere
from tf_strategies import compression
from tf_strategies.callbacks import group_state
from tf_strategies.cluster import Cluster, Task
from tf_strategies.keras.model_state import training_variables

keras = tf.keras


def with_compression(plain: Any, compressor: Any) -> tfs.CollectiveAllReduceStrategy:
    return tfs.CollectiveAllReduceStrategy(
        compression=compressor, devices=list(plain.extended.worker_devices)
    )


def follow_collective(plain: Any, compressor: Any, oracle: Any, *args: Any, **kwargs: Any) -> None:
    training = Training(with_compression(plain, compressor))
    follow(training, oracle, *args, **kwargs)
    require_equal_everywhere(training.strategy, training.model.weights)


def check_top_k_with_error_feedback(plain: Any) -> None:
    for exchange in ("all_gather", "reduce_scatter"):
        oracle = TopKOracle(plain.size, (ROWS, COLUMNS), lambda step: 0.03, exchange=exchange)
        follow_collective(plain, compression.TopK(0.03, exchange=exchange), oracle)


def check_top_k_by_a_schedule(plain: Any) -> None:
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.2, 0.05, 0.01])
    oracle = TopKOracle(
        plain.size, (ROWS, COLUMNS), lambda step: 0.2 if step <= 2 else 0.05 if step <= 5 else 0.01
    )
    follow_collective(plain, compression.TopK(schedule), oracle)


def check_top_k_that_forgets(plain: Any) -> None:
    for exchange in ("all_gather", "reduce_scatter"):
        oracle = TopKOracle(plain.size, (ROWS, COLUMNS), lambda step: 0.03, feedback=False, exchange=exchange)
        follow_collective(plain, compression.TopK(0.03, error_feedback=False, exchange=exchange), oracle)


def check_deep_gradient_compression(plain: Any) -> None:
    for nesterov, exchange in ((False, "all_gather"), (True, "all_gather"), (False, "reduce_scatter")):
        oracle = DeepOracle(plain.size, (ROWS, COLUMNS), lambda step: 0.02, 0.75, nesterov, exchange)
        compressor = compression.DeepGradientCompression(
            0.02, momentum=0.75, nesterov=nesterov, exchange=exchange
        )
        follow_collective(plain, compressor, oracle, Momentum(0.75, nesterov))


def check_deep_gradient_compression_clips_what_each_worker_has(plain: Any) -> None:
    """By the norm of all of a worker's gradients; clipped ones no longer tie, so that rounding cannot choose others."""
    oracle = DeepOracle(plain.size, (ROWS, COLUMNS), lambda step: 1.0, 0.75, False)
    compressor = compression.DeepGradientCompression(1.0, momentum=0.75, clip_norm=20.0)
    follow_collective(plain, compressor, oracle, Momentum(0.75, False), clip_norm=20.0)


def check_the_warm_up_of_deep_gradient_compression(plain: Any) -> None:
    oracle = DeepOracle(
        plain.size,
        (ROWS, COLUMNS),
        lambda step: 0.25 ** (step // 2 + 1) if step < 8 else 0.002,
        0.75,
        False,
        "reduce_scatter",
    )
    compressor = compression.DeepGradientCompression(
        0.002, momentum=0.75, warmup_steps=8, exchange="reduce_scatter"
    )
    follow_collective(plain, compressor, oracle, Momentum(0.75, False))


def check_random_k_moves_others_each_time(plain: Any) -> None:
    training = Training(with_compression(plain, compression.RandomK(0.05, seed=3)))
    before, moved = np.zeros((ROWS, COLUMNS)), []
    for number in range(STEPS):
        training.step(number)
        kernel = training.model.get_weights()[0]
        moved.append(np.flatnonzero(kernel != before))
        before = kernel.copy()
        assert 50 <= len(moved[-1]) <= 100
    assert len(np.unique(np.concatenate(moved))) > 400


def check_power_sgd(plain: Any) -> None:
    for rank in (1, 3):
        factor = tf.random.stateless_normal([COLUMNS, rank], [7, 0]).numpy()
        oracle = PowerOracle(plain.size, (ROWS, COLUMNS), factor)
        follow_collective(plain, compression.PowerSGD(rank, seed=7), oracle)


def check_nothing_is_lost(plain: Any) -> None:
    """With error feedback what was applied and what is kept are together all gradients."""
    for compressor in (
        compression.RandomK(0.05),
        compression.TopK(0.05, value_format="float16"),
        compression.TopK(0.05, value_format="int8"),
        compression.TopK(0.05, value_format="int8", exchange="reduce_scatter"),
        compression.Quantize8(error_feedback=True),
        compression.SignSGD(bucket=100),
        compression.PowerSGD(2),
    ):
        training = Training(with_compression(plain, compressor))
        for number in range(STEPS):
            training.step(number)
        residual = training.strategy.state_of_gradients(training.model.trainable_variables)[1]
        kept = (
            training.strategy.gather(residual[tf.newaxis], axis=0).numpy().sum(axis=0).reshape(ROWS, COLUMNS)
        )
        assert np.abs(kept).max() > 0
        found = kept - training.model.get_weights()[0] / RATE
        np.testing.assert_allclose(
            found, training.kernels.sum(axis=(0, 1)), atol=1e-4, err_msg=str(compressor)
        )
        require_equal_everywhere(training.strategy, training.model.weights)


def check_what_is_rounded_at_random_is_right_on_average(plain: Any) -> None:
    for compressor, largest in (
        (compression.Quantize8(), 1 / 127),
        (compression.Quantize4(), 1 / 7),
        (compression.Ternary(), 1.0),
    ):
        training = Training(with_compression(plain, compressor))
        for number in range(STEPS):
            training.step(number)
        errors = training.model.get_weights()[0] / -RATE - training.kernels.sum(axis=(0, 1))
        draws = STEPS * plain.size
        local = training.replicas / plain.size  # the largest gradient of a worker
        assert 0 < np.abs(errors).max() < draws * local * largest
        # A draw is off by `largest` at most, so its standard deviation is below half of what the two outcomes are apart.
        assert abs(errors.mean()) < 5 * local * largest * np.sqrt(draws / errors.size), compressor
        require_equal_everywhere(training.strategy, training.model.weights)


def check_half_rounds_sums(plain: Any) -> None:
    for dtype, rounding in (("float16", 2.0**-10), ("bfloat16", 2.0**-7)):
        training = Training(with_compression(plain, compression.Half(dtype)))
        expected = np.zeros((ROWS, COLUMNS))
        for number in range(STEPS):
            training.step(number)
            expected -= RATE * training.kernels[number].sum(axis=0)
        limit = rounding * STEPS * training.replicas
        np.testing.assert_allclose(training.model.get_weights()[0], expected, rtol=0, atol=limit)
        require_equal_everywhere(training.strategy, training.model.weights)


def bytes_of_a_step(plain: Any, compressor: Any) -> Counter:
    """Handed to collectives, by kind: of a gather what all workers have."""
    training = Training(with_compression(plain, compressor))
    training.step(0)
    before = training.strategy.communication_stats()
    training.step(1)
    found: Counter = Counter()
    for stats, sign in ((training.strategy.communication_stats(), 1), (before, -1)):
        for each in stats.collectives:
            found[each.kind] += sign * each.bytes
        found["sent"] += sign * stats.bytes_sent
        found["received"] += sign * stats.bytes_received
    return found


def padded(size: int) -> int:
    """What a tensor of a pack takes: the next one begins at a multiple of 64 bytes."""
    return -(-size // 64) * 64


def check_bytes(plain: Any) -> None:
    """An entry has a value of 4 bytes and an index of less than 2, or a value alone where all workers know where it belongs."""
    entries, kernel, flag = 60, 4 * ROWS * COLUMNS, padded(4)
    dense = bytes_of_a_step(plain, None)
    gathered = bytes_of_a_step(plain, compression.TopK(entries / (ROWS * COLUMNS)))
    message = gathered["all_gather"] / plain.size
    assert dense["all_gather"] == 0 and 4 * entries < message < 6 * entries
    counts = 8 * plain.size  # how many entries each worker has
    assert gathered["all_reduce"] == dense["all_reduce"] - kernel + flag + counts
    # A worker hands on what it has to all others; the rest are short messages.
    assert 0.9 * (plain.size - 1) * message < gathered["sent"] < (plain.size - 1) * message + 1000
    drawn = bytes_of_a_step(plain, compression.RandomK(entries / (ROWS * COLUMNS)))
    assert drawn["all_reduce"] == dense["all_reduce"] - kernel + 4 * entries + flag
    elements = ROWS * COLUMNS
    for compressor, size in (
        (compression.Quantize8(), elements),
        (compression.Quantize4(), elements * 4.5 / 8),
        (compression.Ternary(), elements / 4),
        (compression.SignSGD(), elements / 8),
        (compression.TopK(entries / elements, value_format="int8"), 2 * entries),
    ):
        message = bytes_of_a_step(plain, compressor)["all_gather"] / plain.size
        assert size < message < size + entries + 100, (compressor, message)
    power = bytes_of_a_step(plain, compression.PowerSGD(2))
    factors = padded(4 * 2 * ROWS) + padded(4 * 2 * COLUMNS)
    assert abs(power["all_reduce"] - (dense["all_reduce"] - kernel + factors + flag)) < 200
    half = bytes_of_a_step(plain, compression.Half())
    assert half["all_reduce"] == padded(kernel // 2) + padded(2 * COLUMNS)


def check_bytes_of_reduce_scatter(plain: Any) -> None:
    """About the entries of one worker arrive twice, and from each worker some indices, a header and a length."""
    entries = 240
    ratio = entries / (ROWS * COLUMNS)
    message = bytes_of_a_step(plain, compression.TopK(ratio))["all_gather"] / plain.size
    found = bytes_of_a_step(plain, compression.TopK(ratio, exchange="reduce_scatter"))
    beside = 100 * plain.size  # what else there is of a message, and of a step
    others = (plain.size - 1) / plain.size
    samples = 4 * 2 * (plain.size + 8) * plain.size  # indices of all workers, which regions are made by
    assert abs(found["all_gather"] - samples - message) < beside, (found, message)
    assert abs(found["all_to_all"] - message) < 0.3 * message + beside, (found, message)
    dense = bytes_of_a_step(plain, None)["received"] - 4 * ROWS * COLUMNS
    assert found["received"] < 2.3 * others * message + dense + 2 * beside, (found, message)


def check_a_gradient_that_is_not_finite_leaves_no_trace(plain: Any) -> None:
    compressors = [
        compression.TopK(0.03),
        compression.RandomK(0.03),
        compression.DeepGradientCompression(0.03, momentum=0.75, clip_norm=5.0),
    ]
    for compressor in compressors:
        training = Training(with_compression(plain, compressor))
        training.step(0)
        variables = training.strategy.state_of_gradients(training.model.trainable_variables)
        before = [np.array(each) for each in variables]
        assert sum(np.abs(each).sum() for each in before[1:]) > 0
        kept = [np.array(each) for each in training.model.get_weights()]
        training.kernels[1, -1, 3, 4] = np.inf
        training.step(1)
        assert not np.isfinite(training.model.get_weights()[0]).all(), "all workers must see it"
        for mine, old in zip(variables, before):
            np.testing.assert_array_equal(mine.numpy(), old)
        training.model.set_weights(kept)
        training.clear_slots()
        training.step(2)
        assert np.isfinite(training.model.get_weights()[0]).all()
        require_equal_everywhere(training.strategy, training.model.weights)


def check_a_loss_scale_changes_nothing_but_which_steps_are_skipped(plain: Any) -> None:
    """Gradients in float16, of a scale that is too large at first, falls, and grows after three good steps."""
    training = Training(with_compression(plain, compression.TopK(0.03)), loss_scale=2.0**20)
    oracle = TopKOracle(plain.size, (ROWS, COLUMNS), lambda step: 0.03)
    kernel, scale, good, skipped = np.zeros((ROWS, COLUMNS)), 2.0**20, 0, 0
    for number in range(STEPS):
        training.step(number)
        if scale * np.abs(training.kernels[number]).max() > np.finfo(np.float16).max:
            scale, good, skipped = scale / 2, 0, skipped + 1
        else:
            kernel -= RATE * oracle.step(training.of_workers(training.kernels[number]))
            scale, good = (scale * 2, 0) if good == 2 else (scale, good + 1)
        found = training.model.get_weights()[0]
        np.testing.assert_allclose(found, kernel, rtol=0, atol=1e-4, err_msg=f"step {number}")
    assert 5 < skipped < STEPS - 4
    require_equal_everywhere(training.strategy, training.model.weights)


def check_fit_with_every_compressor(plain: Any) -> None:
    """A network learns nearly as well as with whole gradients; the same logs and weights on all workers."""
    generator = np.random.default_rng(1)
    x = generator.standard_normal((960, 12)).astype("float32")
    y = np.tanh(x @ generator.standard_normal((12, 1)).astype("float32"))
    compressors = [
        None,
        compression.Half("bfloat16"),
        compression.TopK(0.1, sampled=True, exchange="reduce_scatter", min_elements=256),
        compression.RandomK(0.2, min_elements=256),
        compression.Quantize8(min_elements=256),
        compression.Ternary(bucket=64, min_elements=256),
        compression.SignSGD(bucket=64, min_elements=256),
        compression.DeepGradientCompression(
            0.1, momentum=0.5, clip_norm=4.0, min_elements=256, warmup_steps=8
        ),
    ]
    dense = 0.0
    for compressor in compressors:
        strategy = with_compression(plain, compressor)
        keras.utils.set_random_seed(9)
        with strategy.scope():
            model = keras.Sequential(
                [keras.layers.Input((12,)), keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(1)]
            )
            model.compile(keras.optimizers.SGD(0.2), "mse")
        losses = model.fit(x, y, batch_size=48, epochs=3, verbose=0).history["loss"]
        dense = dense or losses[-1]
        assert losses[-1] < min(1.5 * dense, 0.8 * losses[0]), (compressor, losses, dense)
        require_equal_everywhere(strategy, [*model.weights, *losses])


def check_other_compressions_are_refused(plain: Any) -> None:
    mine = compression.TopK(0.01 if plain.rank else 0.02)
    try:
        with_compression(plain, mine)
    except Exception as error:
        assert "compression" in str(error) and "TopK(" in str(error), error
    else:
        raise AssertionError("workers with other compressions went on")


def check_what_is_kept_for_more_or_fewer_workers(plain: Any) -> None:
    """What was not sent is not lost: its sum over workers is the same on one worker, and again on all."""
    training = Training(with_compression(plain, compression.DeepGradientCompression(0.02, momentum=0.75)))
    for number in range(3):
        training.step(number)
    strategy, model = training.strategy, training.model

    def sums() -> List[np.ndarray]:
        found = []
        for each in strategy.state_of_gradients(model.trainable_variables)[1:]:
            everyone = strategy.gather(each[tf.newaxis], axis=0).numpy()
            found.append(
                everyone.sum(axis=0) if each.aggregation == tf.VariableAggregation.SUM else everyone[-1]
            )
        return found

    model.optimizer = training.optimizer
    kept, before = group_state.collect(strategy, training_variables(model)), sums()
    assert len(before) == 3 and all(np.abs(each).max() > 0 for each in before)
    alone = Cluster({"worker": ("127.0.0.1:1",)}, Task("worker", 0))
    single = tfs.CollectiveAllReduceStrategy(
        compression=strategy.compression, cluster=alone, devices=["CPU:0"]
    )
    fewer = Training(single)
    fewer.model.optimizer = fewer.optimizer
    variables = training_variables(fewer.model)
    group_state.check(kept, variables, "kept")
    group_state.assign(None, kept, variables)
    found = single.state_of_gradients(fewer.model.trainable_variables)
    assert found[0].numpy() == 3
    for mine, expected in zip(found[1:], before):
        np.testing.assert_allclose(mine.numpy(), expected, rtol=0, atol=1e-6)
    group_state.assign(strategy, group_state.collect(None, variables), training_variables(model))
    for mine, expected in zip(sums(), before):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-6)


def check_rows_of_embeddings(plain: Any) -> None:
    """Slices go row by row beside top-k, and through deep gradient compression as whole gradients."""
    tokens = np.random.default_rng(2).integers(0, 200, (96, 6))
    for compressor in (compression.TopK(0.05), compression.DeepGradientCompression(0.05)):
        strategy = with_compression(plain, compressor)
        keras.utils.set_random_seed(4)
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.layers.Input((6,), dtype="int32"),
                    keras.layers.Embedding(200, 16),
                    keras.layers.Flatten(),
                    keras.layers.Dense(1),
                ]
            )
            model.compile(keras.optimizers.SGD(0.1), "mse")
        first = model.get_weights()[0]
        model.fit(tokens, np.ones((96, 1), "float32"), batch_size=24, epochs=2, verbose=0)
        assert np.abs(model.get_weights()[0] - first).max() > 0
        require_equal_everywhere(strategy, model.weights)


def check_workers_that_choose_other_variables_are_told(plain: Any) -> None:
    """Of the same shapes, so that only their names tell; the last check, for it ends the group."""
    mine = "first" if plain.rank == 0 else "second"
    strategy = with_compression(plain, compression.TopK(0.5, predicate=lambda name, shape: mine in name))
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((8,)),
                keras.layers.Dense(8, use_bias=False, name="first"),
                keras.layers.Dense(8, use_bias=False, name="second"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.ones((12, 8), "float32")
    try:
        model.fit(x, x, batch_size=12, verbose=0)
    except (tf.errors.OpError, RuntimeError) as error:
        assert "entries of 1 gradients" in str(error) or "pack" in str(error), error
    else:
        raise AssertionError("workers that sent gradients of other variables went on")


if __name__ == "__main__":
    run_checks(globals(), on_cpus(int(sys.argv[1]), logical=2), only=sys.argv[2:])
