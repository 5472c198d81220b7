"""Checks the loss scale of mixed precision on parameter servers, with three workers and two servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server.server_models import LARGE_BYTES, Partitioner, compiled, word_model, words
from tests.support.servers import wait_for_all, wait_for_one

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
KERAS3 = hasattr(keras, "ops")

ROWS, STEPS = 36, 10  # rows of a joint batch
OVERFLOWS = (3, 4)  # the steps in which a row of one worker overflows
RATE, INITIAL, GROWTH = 0.5, 256.0, 2


class Scales(keras.callbacks.Callback):
    """Keeps the loss scale after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(scale_of(self.model.optimizer))


def scaled(inner: Any, growth: int = GROWTH) -> Any:
    kind = keras.optimizers if KERAS3 else keras.mixed_precision
    return kind.LossScaleOptimizer(inner, initial_scale=INITIAL, dynamic_growth_steps=growth)


def scale_of(optimizer: Any) -> float:
    return float(optimizer.dynamic_scale.numpy() if KERAS3 else optimizer.loss_scale)


def half_model(growth: int = GROWTH) -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return compiled(word_model(), scaled(keras.optimizers.SGD(RATE, momentum=0.9), growth))
    finally:
        keras.mixed_precision.set_global_policy("float32")


def overflowing() -> tuple:
    """Words, labels, and weights of rows, of which some are infinite."""
    x, y = words(ROWS * STEPS)
    weights = np.ones([len(x)], "float32")
    weights[[ROWS * step + 17 for step in OVERFLOWS]] = np.inf
    return x, y, weights


def cut() -> tfs.ParameterServerOptions:
    return tfs.ParameterServerOptions(partitioner=Partitioner(LARGE_BYTES, max_shards=2), timeout=30)


def check_a_step_that_overflows_on_one_worker_is_skipped_as_in_one_process(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=cut())
    keras.utils.set_random_seed(7 + strategy.rank)
    with strategy.scope():
        model = half_model()
    first = model.get_weights()
    wait_for_all(folder, "half made", strategy.rank, strategy.size)
    x, y, weights = overflowing()
    scales, alone = Scales(), Scales()
    fit = {"batch_size": ROWS, "shuffle": False, "verbose": 0}
    model.fit(x, y, sample_weight=weights, callbacks=[scales], **fit)
    wait_for_all(folder, "half trained", strategy.rank, strategy.size)
    counts = strategy.gradient_counts()
    assert counts.counted == (STEPS,) * 3 and counts.dropped == (0,) * 3, counts
    assert scales.seen == [256.0, 512.0, 512.0, 256.0, 128.0, 128.0, 256.0, 256.0, 512.0, 512.0], scales.seen
    if strategy.rank == 0:
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            plain = half_model()
        plain.set_weights(first)
        plain.fit(x, y, sample_weight=weights, callbacks=[alone], **fit)
        assert scales.seen == alone.seen, alone.seen
        assert int(model.optimizer.iterations.numpy()) == int(plain.optimizer.iterations.numpy())
        moved = 0.0
        for mine, expected, before in zip(model.get_weights(), plain.get_weights(), first):
            np.testing.assert_allclose(mine, expected, rtol=0, atol=2e-3)
            moved = max(moved, float(np.abs(expected - before).max()))
        assert moved > 0.1, moved
    wait_for_all(folder, "half compared", strategy.rank, strategy.size)
    strategy.close()


def check_asynchronous_workers_train_in_half_precision(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=cut())
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = half_model(growth=1000)
    x, y, weights = overflowing()
    model.fit(x, y, sample_weight=weights, batch_size=ROWS // 3, shuffle=False, verbose=0)
    wait_for_all(folder, "half async", strategy.rank, strategy.size)
    pushed = 3 * STEPS - len(OVERFLOWS)
    assert int(model.optimizer.iterations.numpy()) == (
        pushed if KERAS3 else 3 * STEPS
    )  # Keras 2 counts skipped steps, too
    assert strategy.staleness_stats().count == pushed
    assert INITIAL / 4 <= scale_of(model.optimizer) <= INITIAL / 2
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    wait_for_all(folder, "half seen", strategy.rank, strategy.size)
    strategy.close()


class Loop:
    """Two weights on two servers, trained by a loss scale in steps of one's own."""

    def __init__(self, strategy: Any, kind: Any = keras.optimizers.SGD) -> None:
        self.strategy = strategy
        with strategy.scope():
            variable = keras.Variable if KERAS3 else tf.Variable
            self.weights = [variable(1.0, name=name) for name in ("first", "second")]
            self.optimizer = scaled(kind(RATE))
            if KERAS3:
                self.optimizer.build(self.weights)

    def step(self, gradient: float, wait: Callable[[], object], compiles: bool = True) -> None:
        """Trains with gradients of which the second is given. It waits after the scale was read, before gradients leave."""

        def waited(scale: np.ndarray) -> np.ndarray:
            wait()
            return scale

        def replica() -> None:
            one = tf.constant(1.0)
            with tf.GradientTape() as tape:
                tape.watch(one)
                scale = self.optimizer.scale_loss(one) if KERAS3 else self.optimizer.get_scaled_loss(one)
            scale = tf.ensure_shape(tf.numpy_function(waited, [scale], tf.float32), [])
            replicas = tf.distribute.get_replica_context().num_replicas_in_sync
            gradients = [scale / replicas, gradient * scale / replicas]
            if KERAS3:
                self.optimizer.apply(gradients, self.weights)
            else:
                unscaled = self.optimizer.get_unscaled_gradients(gradients)
                self.optimizer.apply_gradients(zip(unscaled, self.weights))

        run = tf.function(self.strategy.run) if compiles else self.strategy.run
        run(replica)

    def state(self) -> tuple:
        """The weights and the loss scale."""
        return (*(float(weight.numpy()) for weight in self.weights), scale_of(self.optimizer))


def check_only_gradients_that_count_are_checked_and_all_weights_are_skipped(folder: Path) -> None:
    options = tfs.ParameterServerOptions(placement="round_robin", timeout=30)
    strategy = tfs.SyncReplicasStrategy(backup_workers=1, options=options)
    rank, size = strategy.rank, strategy.size
    loop = Loop(strategy)
    expected = 1.0
    for number, (late, overflows, compiles) in enumerate([(2, 2, True), (0, 1, False)]):
        name = f"counts {number}"

        def wait(late: int = late, name: str = name) -> None:
            wait_for_all(folder, f"{name} read", rank, size)
            for other in set(range(size)) - {late} if rank == late else ():
                wait_for_one(folder, f"{name} stepped", other)

        loop.step(np.inf if rank == overflows else 1.0, wait, compiles)
        wait_for_all(folder, f"{name} stepped", rank, size)
        if late == overflows:
            expected -= RATE
        assert loop.state() == (expected, expected, (256.0, 128.0)[number]), loop.state()
        wait_for_all(folder, f"{name} seen", rank, size)
    assert strategy.gradient_counts().dropped == (1, 0, 1), strategy.gradient_counts()
    wait_for_all(folder, "counts compared", rank, size)
    strategy.close()


def check_asynchronous_workers_share_a_loss_scale(folder: Path) -> None:
    """In each round all read the scale, and then worker 1 updates, then 2, then 0."""
    options = tfs.ParameterServerOptions(placement="round_robin", timeout=30)
    strategy = tfs.AsyncParameterServerStrategy(options=options)
    rank, size = strategy.rank, strategy.size
    loop = Loop(strategy, keras.optimizers.SGD if KERAS3 else keras.optimizers.legacy.SGD)
    gradients = (1.0, np.inf, np.nan), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, np.inf, 1.0)
    # Two overflows with one scale halve it once. A gradient is divided by the scale that multiplied it, which was changed
    # since. When all see that it is time to double the scale, it is doubled once, and not if it was halved since.
    states = (1.0 - RATE, 128.0), (1.0 - 4 * RATE, 256.0), (1.0 - 7 * RATE, 256.0), (1.0 - 9 * RATE, 128.0)
    for number, (gradient, (weight, scale)) in enumerate(zip(gradients, states)):
        name = f"share {number}"

        def wait(name: str = name) -> None:
            wait_for_all(folder, f"{name} read", rank, size)
            if rank != 1:
                wait_for_one(folder, f"{name} updated", {2: 1, 0: 2}[rank])

        loop.step(gradient[rank], wait)
        wait_for_all(folder, f"{name} updated", rank, size)
        assert loop.state() == (weight, weight, scale), loop.state()
        wait_for_all(folder, f"{name} seen", rank, size)
    assert strategy.staleness_stats().histogram[:4] == (4, 3, 2, 0)
    if not KERAS3:
        error = ""
        try:
            Loop(strategy, keras.optimizers.Nadam).step(1.0, lambda: None, compiles=False)
        except tfs.OptionsError as found:
            error = str(found)
        assert "counts its steps in Python" in error and "mixed_bfloat16" in error, error
    wait_for_all(folder, "shared", rank, size)
    strategy.close()
