"""The decays of the papers on large batches."""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from tf_strategies.arguments import count, not_negative, positive
from tf_strategies.errors import OptionsError
from tf_strategies.keras.current import KERAS
from tf_strategies.keras.types import Config
from tf_strategies.types import TensorLike

__all__ = ["PolynomialDecay", "StepDecay"]

_Schedule = KERAS.optimizers.schedules.LearningRateSchedule


@KERAS.saving.register_keras_serializable(package="tf_strategies")
class PolynomialDecay(_Schedule):
    """Lowers a rate to its end as a power of the steps that are left.

    The rate at step t is `end_rate` + (`initial_rate` − `end_rate`) · (1 − t / `decay_steps`)^`power`, and `end_rate` from step
    `decay_steps` on. Keras's schedule of this name does the same with other names and a power of 1.

    Args:
        initial_rate: the rate at step 0, above 0.
        decay_steps: the number of steps until `end_rate`.
        power: the exponent, above 0.
        end_rate: the last rate.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        You et al. 2017, "Large batch training of convolutional networks", §5: power 2, with LARS.

    Example:
        >>> rate = tfs.schedules.PolynomialDecay(8.0, 1000)
        >>> print(*(float(rate(step)) for step in (0, 500, 1000)))
        8.0 2.0 0.0
    """

    def __init__(
        self, initial_rate: float, decay_steps: int, power: float = 2.0, end_rate: float = 0.0
    ) -> None:
        super().__init__()
        self.initial_rate = positive("initial_rate", initial_rate)
        self.decay_steps = count("decay_steps", decay_steps)
        self.power = positive("power", power)
        self.end_rate = not_negative("end_rate", end_rate)

    def __call__(self, step: TensorLike) -> tf.Tensor:
        """Returns the rate of a step, [] float32."""
        done = tf.minimum(_number(step) / self.decay_steps, 1.0)
        return self.end_rate + (self.initial_rate - self.end_rate) * (1.0 - done) ** self.power

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same schedule."""
        return {name: getattr(self, name) for name in ("initial_rate", "decay_steps", "power", "end_rate")}


@KERAS.saving.register_keras_serializable(package="tf_strategies")
class StepDecay(_Schedule):
    """Multiplies a rate by a factor at some steps.

    Args:
        initial_rate: the rate at step 0, above 0.
        boundaries: the steps from which on the rate is multiplied once more, growing. For epochs, give multiples of the steps
            of an epoch.
        factor: the factor, above 0.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", §5.1: a tenth at epochs 30, 60 and 80.

    Example:
        >>> rate = tfs.schedules.StepDecay(3.2, [30, 60, 80], factor=0.5)
        >>> print(*(round(float(rate(step)), 3) for step in (29, 30, 60, 80)))
        3.2 1.6 0.8 0.4
    """

    def __init__(self, initial_rate: float, boundaries: Sequence[int], factor: float = 0.1) -> None:
        super().__init__()
        self.initial_rate = positive("initial_rate", initial_rate)
        self.boundaries = [count("boundaries", each) for each in boundaries]
        if self.boundaries != sorted(set(self.boundaries)):
            raise OptionsError(f"boundaries must be steps that grow; got {list(boundaries)!r}")
        self.factor = positive("factor", factor)

    def __call__(self, step: TensorLike) -> tf.Tensor:
        """Returns the rate of a step, [] float32."""
        rates = [self.initial_rate * self.factor**passed for passed in range(len(self.boundaries) + 1)]
        passed = tf.reduce_sum(tf.cast(_number(step) >= tf.constant(self.boundaries, tf.float32), tf.int32))
        return tf.gather(tf.constant(rates, tf.float32), passed)

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same schedule."""
        return {
            "initial_rate": self.initial_rate,
            "boundaries": list(self.boundaries),
            "factor": self.factor,
        }


def _number(step: TensorLike) -> tf.Tensor:
    return tf.cast(tf.convert_to_tensor(step), tf.float32)
