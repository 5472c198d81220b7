"""Compressors in one process: their settings, and what they do without other workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tf_strategies import compression
from tf_strategies.compression import ratio

keras = tf.keras


def collective(compressor: Any) -> Any:
    return tfs.CollectiveAllReduceStrategy(compression=compressor, devices=["CPU:0"])


def asynchronous(compressor: Any) -> Any:
    return tfs.AsyncParameterServerStrategy(compression=compressor)


def synchronous(compressor: Any) -> Any:
    return tfs.SyncReplicasStrategy(compression=compressor)


each_strategy = pytest.mark.parametrize("make_strategy", [collective, asynchronous, synchronous])


def trained(compressor: Any, optimizer: Any, make_strategy: Any = collective) -> list:
    """The weights of a network after 20 steps of `fit` on one device; `optimizer` makes one."""
    generator = np.random.default_rng(7)
    x = generator.standard_normal((320, 10)).astype("float32")
    y = (x @ generator.standard_normal((10, 3))).astype("float32")
    strategy = make_strategy(compressor)
    keras.utils.set_random_seed(2)
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((10,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)]
        )
        model.compile(optimizer(), "mse")
    model.fit(x, y, batch_size=16, epochs=1, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.mark.parametrize("nesterov", [False, True])
@each_strategy
def test_deep_gradient_compression_of_everything_alone_is_sgd_with_momentum(
    nesterov: bool, make_strategy: Any
) -> None:
    compressor = compression.DeepGradientCompression(1.0, momentum=0.9, nesterov=nesterov, min_elements=0)
    found = trained(compressor, lambda: keras.optimizers.SGD(0.05), make_strategy)
    expected = trained(None, lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=nesterov))
    for mine, right in zip(found, expected):
        np.testing.assert_allclose(mine, right, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "compressor",
    [
        compression.TopK(1.0, min_elements=0),
        compression.TopK(1.0, exchange="reduce_scatter", min_elements=0),
        compression.RandomK(1.0, min_elements=0),
    ],
)
@each_strategy
def test_sending_everything_changes_nothing(compressor: Any, make_strategy: Any) -> None:
    found = trained(compressor, lambda: keras.optimizers.Adam(0.01), make_strategy)
    for mine, right in zip(found, trained(None, lambda: keras.optimizers.Adam(0.01))):
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-7)


def test_power_sgd_of_full_rank_changes_nothing() -> None:
    compressor = compression.PowerSGD(16, predicate=lambda name, shape: len(shape) > 1)
    found = trained(compressor, lambda: keras.optimizers.SGD(0.05))
    for mine, right in zip(found, trained(None, lambda: keras.optimizers.SGD(0.05))):
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-5)


def test_power_sgd_takes_what_it_makes_smaller_and_no_servers() -> None:
    compressor = compression.PowerSGD(4, min_elements=0)
    assert compressor.takes("kernel", (3, 3, 8, 16)) and not compressor.takes("kernel", (5, 16))
    for make_strategy in (asynchronous, synchronous):
        with pytest.raises(tfs.OptionsError, match="PowerSGD does not work with parameter servers"):
            make_strategy(compressor)


@each_strategy
def test_sending_little_changes_something(make_strategy: Any) -> None:
    found = trained(compression.TopK(0.05, min_elements=0), lambda: keras.optimizers.SGD(0.05), make_strategy)
    expected = trained(None, lambda: keras.optimizers.SGD(0.05))
    assert max(np.abs(mine - right).max() for mine, right in zip(found, expected)) > 1e-3


def test_which_variables_are_taken() -> None:
    by_size = compression.TopK(0.1, min_elements=100)
    assert by_size.takes("kernel", (10, 10))
    assert not by_size.takes("kernel", (9, 11))
    assert not by_size.takes("bias", (1000,))
    by_name = compression.TopK(0.1, predicate=lambda name, shape: "head" not in name and shape[0] > 1)
    assert by_name.takes("body/bias", (2,))
    assert not by_name.takes("head/kernel", (100, 100))
    assert compression.Half().takes("bias", (1,))
    assert not compression.Half(min_elements=10).takes("bias", (11,))


def test_the_warm_up_sends_a_quarter_of_the_stage_before() -> None:
    at = ratio.warmed_up(0.001, 8)
    found = [float(at(tf.constant(step, tf.int64))) for step in range(10)]
    np.testing.assert_allclose(
        found, [0.25] * 2 + [0.0625] * 2 + [0.015625] * 2 + [0.00390625] * 2 + [0.001] * 2
    )
    assert ratio.warmed_up(0.5, 0) == 0.5
    assert float(ratio.warmed_up(0.1, 8)(tf.constant(4, tf.int64))) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("given", "elements", "count"),
    [(0.001, 1000, 1), (0.001, 1501, 2), (1.0, 7, 7), (1e-9, 5, 1), (0.5, 0, 0)],
)
def test_how_many_entries_are_sent(given: float, elements: int, count: int) -> None:
    step = tf.constant(0, tf.int64)
    assert ratio.entries(given, elements, step) == count
    assert int(ratio.entries(lambda step: given, elements, step)) == count


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compression.TopK(0), "ratio must be a number above 0 and at most 1, .* got 0"),
        (lambda: compression.TopK(1.5), "ratio must .* got 1.5"),
        (lambda: compression.TopK("0.1"), "ratio must .* got '0.1'"),
        (lambda: compression.TopK(0.1, error_feedback=1), "error_feedback must be True or False; got 1"),
        (
            lambda: compression.TopK(0.1, min_elements=-1),
            "min_elements must be a whole number, at least 0 .*; got -1",
        ),
        (
            lambda: compression.TopK(0.1, predicate="kernel"),
            "predicate must be None or a function .* got 'kernel'",
        ),
        (lambda: compression.RandomK(0.1, seed=1.5), "seed must be a whole number, at least 0 .*; got 1.5"),
        (
            lambda: compression.TopK(value_format="int4"),
            "value_format must be one of 'float32', .*; got 'int4'",
        ),
        (
            lambda: compression.TopK(exchange="ring"),
            "exchange must be one of 'all_gather', 'reduce_scatter'; got 'ring'",
        ),
        (lambda: compression.DeepGradientCompression(exchange=None), "exchange must be one of .* got None"),
        (lambda: compression.SignSGD(bucket=0), "bucket must be a whole number, at least 1 .*; got 0"),
        (lambda: compression.Quantize4(bucket=0), "bucket must be a whole number, at least 1 .*; got 0"),
        (
            lambda: compression.Quantize8(error_feedback=None),
            "error_feedback must be True or False; got None",
        ),
        (lambda: compression.PowerSGD(0), "rank must be a whole number, at least 1 .*; got 0"),
        (lambda: compression.Half("float8"), "dtype must be one of 'float16', 'bfloat16'; got 'float8'"),
        (
            lambda: compression.DeepGradientCompression(momentum=1.0),
            "momentum must be from 0 to below 1; got 1.0",
        ),
        (
            lambda: compression.DeepGradientCompression(clip_norm=0),
            "clip_norm must be above 0, or None; got 0",
        ),
        (lambda: compression.DeepGradientCompression(lambda step: 0.1), "ratio must be a number"),
        (
            lambda: compression.DeepGradientCompression(warmup_steps=0.5),
            "warmup_steps must be a whole number",
        ),
        (
            lambda: tfs.CollectiveAllReduceStrategy(compression="top_k"),
            "compression must be None or .* got 'top_k'",
        ),
    ],
)
def test_bad_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        make()


def test_settings_are_said_alike_by_all_workers() -> None:
    assert repr(compression.TopK(0.1)) == repr(compression.TopK(0.1))
    assert repr(compression.TopK(0.1)) != repr(compression.TopK(0.2))
    assert repr(compression.TopK(0.1)) != repr(compression.TopK(0.1, exchange="reduce_scatter"))
    with_predicate = [repr(compression.TopK(0.1, predicate=lambda name, shape: True)) for _ in range(2)]
    assert with_predicate[0] == with_predicate[1]
    schedules = [
        repr(compression.TopK(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5))) for _ in range(2)
    ]
    assert schedules[0] == schedules[1]


@pytest.mark.parametrize(
    "optimizer",
    [lambda: keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam],
    ids=["momentum", "Adam"],
)
def test_momentum_twice_is_refused(optimizer: Any) -> None:
    with pytest.raises(tfs.OptionsError, match=r"applies momentum=0\.9 itself.*use SGD without momentum"):
        trained(compression.DeepGradientCompression(), optimizer)


@pytest.mark.parametrize(
    ("compressor", "settings", "message"),
    [
        (
            compression.TopK(),
            {"clipnorm": 1.0},
            "clipnorm=1.0 of optimizer .* it would clip the values that are sent late",
        ),
        (compression.DeepGradientCompression(), {"global_clipnorm": 1.0}, "use clip_norm of .*DeepGradient"),
        (
            compression.DeepGradientCompression(),
            {"weight_decay": 0.1},
            "weight_decay=0.1 .* kernel_regularizer",
        ),
    ],
)
def test_what_would_undo_compression_is_refused(compressor: Any, settings: dict, message: str) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        trained(compressor, lambda: keras.optimizers.SGD(0.1, **settings))


def test_clipping_what_is_sent_anew_each_time_is_not_refused() -> None:
    trained(compression.Half(), lambda: keras.optimizers.SGD(0.1, clipnorm=1.0))


def test_gradients_in_float64_have_momentum_too() -> None:
    found = []
    for compressor, momentum in (
        (compression.DeepGradientCompression(1.0, min_elements=0), 0.0),
        (None, 0.9),
    ):
        strategy = tfs.CollectiveAllReduceStrategy(compression=compressor, devices=["CPU:0"])
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, dtype="float64")])
            model.compile(keras.optimizers.SGD(0.1, momentum=momentum), "mse")
        x = np.random.default_rng(1).standard_normal((64, 4))
        model.fit(x, x[:, :3] * 2, batch_size=8, epochs=1, shuffle=False, verbose=0)
        found.append(model.get_weights())
    for mine, right in zip(*found):
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-5)


def test_what_is_assigned_or_reduced_by_hand_is_not_compressed(strategy) -> None:
    del strategy  # two devices there are
    own = tfs.CollectiveAllReduceStrategy(
        compression=compression.TopK(0.1, min_elements=0), devices=["CPU:0", "CPU:1"]
    )
    with own.scope():
        variable = tf.Variable(tf.zeros([4, 5]), aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def step() -> Any:
        def replica() -> tf.Tensor:
            variable.assign(tf.ones([4, 5]))
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, variable)

        return own.run(replica)

    total = own.experimental_local_results(step())[0]
    assert float(tf.reduce_sum(variable)) == 20
    assert float(tf.reduce_sum(total)) == 40


def test_what_is_remembered_goes_with_its_variable() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(compression=compression.TopK(0.1, min_elements=0))
    with strategy.scope():
        variable = tf.Variable(tf.zeros([6, 5]), name="weight")
    step, residual = strategy.state_of_gradients([variable])
    assert step.dtype == tf.int64
    assert residual.shape == [30] and residual.name.startswith("weight/residual")
    assert strategy.state_of_gradients([variable])[1] is residual
    state = strategy.extended._cross_device_ops.compressed._compression._state
    assert len(state._eager.slots) == 1
    del variable, residual
    import gc

    gc.collect()
    assert not state._eager.slots
