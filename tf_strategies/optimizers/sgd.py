"""SGD with momentum as large batches need it."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.arguments import not_negative, share
from tf_strategies.keras.current import KERAS
from tf_strategies.keras.optimizer_base import Exclude, OptimizerBase, Update
from tf_strategies.keras.types import Config, LearningRate
from tf_strategies.optimizers.rules import with_momentum

__all__ = ["SGD"]


@KERAS.saving.register_keras_serializable(package="tf_strategies")
class SGD(OptimizerBase):
    """Trains by SGD with momentum, weight decay without biases and batch normalization, and momentum correction.

    For the gradient g of a weight w, the direction is d = g + λ·w, or g for an excluded variable. The velocity is v ← m·v + d,
    and w ← w − γ·v. Keras's SGD has the rate γ inside of the velocity (v ← m·v − γ·g): when the rate grows in a warm-up, its
    momentum is too small, and after a decay too large. `momentum_correction=False` does the same.

    Args:
        learning_rate: γ: a number, or a `keras.optimizers.schedules.LearningRateSchedule`.
        momentum: m, at least 0 and below 1.
        nesterov: whether Nesterov's momentum is used.
        weight_decay: λ. It is part of the gradient, as an L2 regularizer λ/2·‖w‖² is.
        momentum_correction: whether the rate is outside of the velocity.
        exclude: `(name, shape) -> bool`; chooses the variables without weight decay.
            By default those whose name ends with "bias", "gamma" or "beta", and those with fewer than two dimensions. The name
            is that of the variable and its layers, "dense/kernel".
        name: the name of the optimizer.
        options: other arguments of `keras.optimizers.Optimizer`, such as `global_clipnorm`; and `gradient_accumulation_steps`,
            the batches of an update, with any Keras.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", §3 (momentum correction) and §5.1 (no
        weight decay on γ and β). He et al. 2019, "Bag of tricks for image classification", §3.1 (no weight decay on biases).

    Example:
        >>> optimizer = tfs.optimizers.SGD(0.4, momentum=0.9, nesterov=True, weight_decay=1e-4)
        >>> model.compile(optimizer, "mse")
    """

    slot_names = ("momentum",)

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        momentum_correction: bool = True,
        exclude: Optional[Exclude] = None,
        name: Optional[str] = None,
        **options: Any,
    ) -> None:
        momentum = share("momentum", momentum)
        weight_decay = not_negative("weight_decay", weight_decay)
        super().__init__(
            learning_rate, name=name, weight_decay=weight_decay, exclude=exclude, options=options
        )
        self.momentum = momentum
        self.nesterov = bool(nesterov)
        self.momentum_correction = bool(momentum_correction)

    def _computed(self, update: Update) -> Tuple[tf.Tensor, Sequence[tf.Tensor]]:
        direction = update.gradient
        if not update.excluded:
            direction = self._scaled(update.weight, direction)
        change, velocity = with_momentum(
            direction,
            update.slots[0],
            update.rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            rate_in_velocity=not self.momentum_correction,
        )
        return change, [velocity]

    def _scaled(self, weight: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Returns the direction for a variable that is not excluded, [...]."""
        return gradient + self.weight_decay * weight

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same optimizer."""
        names = ("momentum", "nesterov", "momentum_correction")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
