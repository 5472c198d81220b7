"""Rates for large batches: their values by step, what is refused, saving, and training with them."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.exactness.programs.registry import keras  # noqa: E402
from tf_strategies.schedules import LinearScalingWarmup, PolynomialDecay, StepDecay  # noqa: E402

pytestmark = [pytest.mark.keras]


def warmup(**kwargs: Any) -> LinearScalingWarmup:
    kwargs = {"global_batch": 1024, "warmup_steps": 4, **kwargs}
    return LinearScalingWarmup(0.1, 256, **kwargs)


def cosine(peak: float) -> Any:
    return keras.optimizers.schedules.CosineDecay(peak, 10)


CASES = {
    "gradual": (lambda: warmup(), [0.1, 0.175, 0.25, 0.325, 0.4, 0.4]),
    "constant": (lambda: warmup(mode="constant"), [0.1, 0.1, 0.1, 0.1, 0.4, 0.4]),
    "from 0": (lambda: warmup(start_rate=0), [0.0, 0.1, 0.2, 0.3, 0.4, 0.4]),
    "none": (lambda: warmup(warmup_steps=0), [0.4] * 6),
    "epochs": (
        lambda: warmup(warmup_steps=None, warmup_epochs=1.5, steps_per_epoch=2),
        [0.1, 0.2, 0.3, 0.4, 0.4, 0.4],
    ),
    "smaller batch": (lambda: warmup(global_batch=128, warmup_steps=2), [0.1, 0.075, 0.05, 0.05]),
    "then a schedule of Keras": (
        lambda: warmup(warmup_steps=2, after=cosine),
        [0.1, 0.25, *(0.2 + 0.2 * np.cos(np.pi * np.minimum(np.arange(12) / 10, 1.0)))],
    ),
    "then steps": (
        lambda: warmup(warmup_steps=1, after=StepDecay(0.4, [2, 3])),
        [0.1, 0.4, 0.4, 0.04, 0.004, 0.004],
    ),
    "polynomial": (
        lambda: PolynomialDecay(2.0, 4, end_rate=1.0),
        [2.0, 1 + 9 / 16, 1.25, 1 + 1 / 16, 1.0, 1.0],
    ),
    "linear": (lambda: PolynomialDecay(2.0, 4, power=1), [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]),
    "steps": (lambda: StepDecay(1.0, [1, 4], factor=0.5), [1.0, 0.5, 0.5, 0.5, 0.25, 0.25]),
    "no steps": (lambda: StepDecay(1.0, []), [1.0, 1.0]),
}


@pytest.mark.smoke
@pytest.mark.parametrize("case", CASES)
def test_rates_by_step_before_and_after_saving(case: str) -> None:
    make, expected = CASES[case]
    schedule = make()
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    assert isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
    assert type(again) is type(schedule) and again.get_config() == schedule.get_config()
    in_graph = tf.function(again)
    for step, rate in enumerate(expected):
        assert float(schedule(step)) == pytest.approx(rate, rel=1e-6, abs=1e-7), step
        assert float(in_graph(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-6, abs=1e-7)


def test_the_global_batch_is_that_of_the_strategy(strategy: Any) -> None:
    assert strategy.num_replicas_in_sync == 2
    given = warmup(global_batch=None, per_replica_batch=64, strategy=strategy)
    with strategy.scope():
        opened = warmup(global_batch=None, per_replica_batch=64)
    alone = warmup(global_batch=None, per_replica_batch=64)
    assert [each.global_batch for each in (given, opened, alone)] == [128, 128, 64]
    assert given.scaled_rate == pytest.approx(0.05)


def test_an_optimizer_counts_its_steps() -> None:
    variable = tf.Variable(0.0)
    optimizer = keras.optimizers.SGD(warmup(start_rate=0))
    for step in range(6):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        assert float(variable.numpy()) == pytest.approx(-sum([0, 0.1, 0.2, 0.3, 0.4, 0.4][: step + 1]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearScalingWarmup(0.1, 256, warmup_steps=1), "needs either global_batch, or per_replica"),
        (lambda: warmup(per_replica_batch=2), "got global_batch=1024 and per_replica_batch=2"),
        (lambda: warmup(warmup_epochs=1), "needs either warmup_steps, or warmup_epochs and steps_per_epoch"),
        (lambda: warmup(warmup_steps=None, warmup_epochs=1), "steps_per_epoch=None"),
        (lambda: warmup(warmup_steps=1.5), "warmup_steps must be a whole number of at least 0; got 1.5"),
        (lambda: warmup(global_batch=0), "global_batch must be a whole number of at least 1; got 0"),
        (lambda: warmup(mode="slow"), "mode must be one of gradual, constant; got 'slow'"),
        (lambda: warmup(after=0.1), "after must be None, a .*keras LearningRateSchedule, or a function"),
        (lambda: warmup(after=lambda peak: peak), "one; got 0.4"),
        (lambda: LinearScalingWarmup(0.0, 256, global_batch=1, warmup_steps=1), "base_rate must be a finite"),
        (lambda: StepDecay(0.1, [3, 3]), r"boundaries must be steps that grow; got \[3, 3\]"),
        (lambda: PolynomialDecay(0.1, 0), "decay_steps must be a whole number of at least 1; got 0"),
    ],
)
def test_bad_arguments_are_refused(make: Callable, message: str) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        make()
