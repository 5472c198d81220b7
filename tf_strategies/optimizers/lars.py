"""LARS: SGD with momentum whose rate is scaled for each layer."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tf_strategies.arguments import positive
from tf_strategies.keras.current import KERAS
from tf_strategies.keras.optimizer_base import Exclude
from tf_strategies.keras.types import Config, LearningRate
from tf_strategies.optimizers.rules import lars_ratio
from tf_strategies.optimizers.sgd import SGD

__all__ = ["LARS"]


@KERAS.saving.register_keras_serializable(package="tf_strategies")
class LARS(SGD):
    """Trains by SGD with momentum whose rate follows the norms of each variable's weights and gradient.

    For the gradient g of a weight w, the trust ratio is r = η·‖w‖ / (‖g‖ + β·‖w‖); it is 1 if ‖w‖ or ‖g‖ is 0. Then
    v ← m·v + γ·r·(g + β·w), and w ← w − v. For an excluded variable, v ← m·v + γ·g. Note that excluded variables take the whole
    rate γ, of which the others take about η·‖w‖/‖g‖.

    Norms are those of the joint gradient of all workers, in float32. Rows of embeddings are trained as the dense gradient is,
    so each step reads and writes the whole table. A variable that is cut into parts on parameter servers is refused.

    Args:
        learning_rate: γ: a number, or a `keras.optimizers.schedules.LearningRateSchedule`.
        momentum: m, at least 0 and below 1.
        nesterov: whether Nesterov's momentum is used: w ← w − (m·v + γ·r·(g + β·w)).
        weight_decay: β. It is inside of the trust ratio and of the momentum.
        trust_coefficient: η, above 0.
        momentum_correction: False for the momentum of You et al., with the rate inside of the velocity. True for the rate
            outside (v ← m·v + r·(g + β·w), w ← w − γ·v), which Goyal et al. recommend when the rate changes.
        exclude: `(name, shape) -> bool`; chooses the variables that are trained by plain momentum, without decay.
            By default those whose name ends with "bias", "gamma" or "beta", and those with fewer than two dimensions. The name
            is that of the variable and its layers, "dense/kernel".
        name: the name of the optimizer.
        options: other arguments of `keras.optimizers.Optimizer`, such as `global_clipnorm`; and `gradient_accumulation_steps`,
            the batches of an update, with any Keras.

    Raises:
        OptionsError: an argument has a value that is not allowed, or when training starts, a variable is cut into parts.

    References:
        You, Gitman & Ginsburg 2017, "Large batch training of convolutional networks", equation 6 and algorithm 1. Goyal et al.
        2017, "Accurate, large minibatch SGD", §3, for momentum correction.

    Example:
        >>> optimizer = tfs.optimizers.LARS(8.0, weight_decay=5e-4, exclude=lambda name, shape: "bias" in name)
        >>> model.compile(optimizer, "mse")
    """

    joint_norms = True

    def __init__(
        self,
        learning_rate: LearningRate,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        trust_coefficient: float = 0.001,
        momentum_correction: bool = False,
        exclude: Optional[Exclude] = None,
        name: Optional[str] = None,
        **options: Any,
    ) -> None:
        trust_coefficient = positive("trust_coefficient", trust_coefficient)
        super().__init__(
            learning_rate,
            momentum,
            nesterov,
            weight_decay,
            momentum_correction=momentum_correction,
            exclude=exclude,
            name=name,
            **options,
        )
        self.trust_coefficient = trust_coefficient

    def _scaled(self, weight: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        ratio = lars_ratio(weight, gradient, trust=self.trust_coefficient, decay=self.weight_decay)
        return ratio * super()._scaled(weight, gradient)

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same optimizer."""
        return {**super().get_config(), "trust_coefficient": self.trust_coefficient}
