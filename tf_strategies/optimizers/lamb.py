"""LAMB: Adam whose rate is scaled for each layer."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.arguments import not_negative, positive, share
from tf_strategies.errors import OptionsError
from tf_strategies.keras.current import KERAS
from tf_strategies.keras.optimizer_base import Exclude, OptimizerBase, Update
from tf_strategies.keras.types import Config, LearningRate
from tf_strategies.optimizers.rules import adam_direction, lamb_ratio
from tf_strategies.types import Unchecked

__all__ = ["LAMB"]


@KERAS.saving.register_keras_serializable(package="tf_strategies")
class LAMB(OptimizerBase):
    """Trains by Adam whose step is scaled, for each variable, to the norm of its weights. For models with attention.

    With Adam's direction a = m̂ / (√v̂ + ε), both moments corrected for their start, u = a + λ·w and w ← w − γ·φ(‖w‖)/‖u‖·u. The
    ratio is 1 if φ(‖w‖) or ‖u‖ is 0. For an excluded variable, w ← w − γ·a.

    Norms are taken in float32. Rows of embeddings are trained as the dense gradient is, so each step reads and writes the whole
    table. A variable that is cut into parts on parameter servers is refused.

    Args:
        learning_rate: γ: a number, or a `keras.optimizers.schedules.LearningRateSchedule`.
        beta_1: the decay of the first moment, at least 0 and below 1.
        beta_2: the decay of the second moment, at least 0 and below 1.
        epsilon: ε, above 0.
        weight_decay: λ. It is inside of the ratio, and outside of the moments.
        weight_norm_bounds: φ clips ‖w‖ to this smallest and largest value; None for φ(‖w‖) = ‖w‖.
        exclude: `(name, shape) -> bool`; chooses the variables that are trained by Adam, without decay and ratio.
            By default those whose name ends with "bias", "gamma" or "beta", and those with fewer than two dimensions. The name
            is that of the variable and its layers, "dense/kernel".
        name: the name of the optimizer.
        options: other arguments of `keras.optimizers.Optimizer`, such as `global_clipnorm`; and `gradient_accumulation_steps`,
            the batches of an update, with any Keras.

    Raises:
        OptionsError: an argument has a value that is not allowed, or when training starts, a variable is cut into parts.

    References:
        You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes", algorithm 2.

    Example:
        >>> exclude = lambda name, shape: any(part in name for part in ("bias", "gamma", "beta"))
        >>> model.compile(tfs.optimizers.LAMB(0.002, weight_decay=0.01, exclude=exclude), "mse")
    """

    slot_names = ("first_moment", "second_moment")
    joint_norms = True

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        weight_norm_bounds: Optional[Tuple[float, float]] = None,
        exclude: Optional[Exclude] = None,
        name: Optional[str] = None,
        **options: Any,
    ) -> None:
        beta_1, beta_2 = share("beta_1", beta_1), share("beta_2", beta_2)
        epsilon = positive("epsilon", epsilon)
        weight_decay = not_negative("weight_decay", weight_decay)
        bounds = None if weight_norm_bounds is None else _bounds(weight_norm_bounds)
        super().__init__(
            learning_rate, name=name, weight_decay=weight_decay, exclude=exclude, options=options
        )
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.weight_norm_bounds = bounds

    def _computed(self, update: Update) -> Tuple[tf.Tensor, Sequence[tf.Tensor]]:
        direction, *moments = adam_direction(
            update.gradient,
            *update.slots,
            tf.cast(update.iterations, update.weight.dtype) + 1,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
        )
        if update.excluded:
            return update.rate * direction, moments
        direction = direction + self.weight_decay * update.weight
        bounds = None if self.weight_norm_bounds is None else tuple(self.weight_norm_bounds)
        return update.rate * lamb_ratio(update.weight, direction, bounds) * direction, moments

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same optimizer."""
        bounds = None if self.weight_norm_bounds is None else list(self.weight_norm_bounds)
        names = ("beta_1", "beta_2", "epsilon")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
            "weight_norm_bounds": bounds,
        }


def _bounds(value: Unchecked) -> Tuple[float, float]:
    try:
        low, high = value
        low, high = not_negative("weight_norm_bounds", low), positive("weight_norm_bounds", high)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if low > high:
        raise OptionsError(
            f"weight_norm_bounds must be None or two finite numbers, from 0, the smaller first; got {value!r}"
        )
    return low, high
