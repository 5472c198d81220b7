"""The learning rate of large batches: scaled with the batch, and reached after a warm-up."""

from __future__ import annotations

from typing import Callable, Optional, Union

import tensorflow as tf

from tf_strategies.arguments import count, not_negative, positive
from tf_strategies.errors import OptionsError
from tf_strategies.keras.current import KERAS
from tf_strategies.keras.types import Config, LearningRateSchedule
from tf_strategies.types import TensorLike, Unchecked

__all__ = ["LinearScalingWarmup"]

_Schedule = KERAS.optimizers.schedules.LearningRateSchedule
_MODES = ("gradual", "constant")


@KERAS.saving.register_keras_serializable(package="tf_strategies")
class LinearScalingWarmup(_Schedule):
    """Multiplies a rate by the growth of the batch, and begins with smaller rates.

    The scaled rate is `base_rate` · `global_batch` / `reference_batch`. In a gradual warm-up the rate grows by the same amount
    at each step, from `start_rate` at step 0 to the scaled rate at step `warmup_steps`. In a constant warm-up it is
    `start_rate` before that step. Then the rate is that of `after`, whose step 0 is step `warmup_steps`: a decay over n steps
    ends at step `warmup_steps` + n.

    The global batch is the number of rows of an update. For `fit` it is the batch size, which the strategy splits between its
    replicas, with any AutoShardPolicy. Steps are those that the optimizer counts for its schedules: with
    `gradient_accumulation_steps` each batch is a step, and an update has the rows of several batches.

    Args:
        base_rate: the rate for `reference_batch`, above 0.
        reference_batch: the number of rows for which `base_rate` was found.
        global_batch: the number of rows of an update, of all replicas.
        per_replica_batch: the number of rows of an update on each replica, in place of `global_batch`.
        strategy: the strategy whose replicas each have `per_replica_batch` rows; by default the one whose scope is open.
            Replicas that do not share their updates, as with AsyncParameterServerStrategy, count as one.
        warmup_steps: the number of steps of the warm-up; 0 for none.
        warmup_epochs: the same in epochs, in place of `warmup_steps`.
        steps_per_epoch: the number of steps of an epoch, for `warmup_epochs`.
        mode: "gradual" or "constant".
        start_rate: the rate at step 0; by default `base_rate`.
        after: a `keras.optimizers.schedules.LearningRateSchedule`; or a function that takes the scaled rate and returns one; or
            None for the scaled rate until the end.

    Raises:
        OptionsError: an argument has a value that is not allowed, or is missing.

    References:
        Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", §2.1 (linear scaling) and §2.2
        (constant and gradual warm-up).

    Example:
        >>> rate = tfs.schedules.LinearScalingWarmup(
        ...     0.1,
        ...     256,
        ...     global_batch=1024,
        ...     warmup_steps=100,
        ...     after=lambda peak: keras.optimizers.schedules.CosineDecay(peak, 900),
        ... )
        >>> print(*(round(float(rate(step)), 3) for step in (0, 50, 100, 1000)))
        0.1 0.25 0.4 0.0
    """

    def __init__(
        self,
        base_rate: float,
        reference_batch: int,
        *,
        global_batch: Optional[int] = None,
        per_replica_batch: Optional[int] = None,
        strategy: Optional[tf.distribute.Strategy] = None,
        warmup_steps: Optional[int] = None,
        warmup_epochs: Optional[float] = None,
        steps_per_epoch: Optional[int] = None,
        mode: str = "gradual",
        start_rate: Optional[float] = None,
        after: Union[LearningRateSchedule, Callable[[float], LearningRateSchedule], None] = None,
    ) -> None:
        super().__init__()
        self.base_rate = positive("base_rate", base_rate)
        self.reference_batch = count("reference_batch", reference_batch)
        self.global_batch = _global_batch(global_batch, per_replica_batch, strategy)
        self.warmup_steps = _warmup_steps(warmup_steps, warmup_epochs, steps_per_epoch)
        if mode not in _MODES:
            raise OptionsError(f"mode must be one of {', '.join(_MODES)}; got {mode!r}")
        self.mode = mode
        self.start_rate = self.base_rate if start_rate is None else not_negative("start_rate", start_rate)
        self.after = _schedule(after, self.scaled_rate)

    @property
    def scaled_rate(self) -> float:
        """The rate after the warm-up."""
        return self.base_rate * self.global_batch / self.reference_batch

    def __call__(self, step: TensorLike) -> tf.Tensor:
        """Returns the rate of a step, [] float32."""
        step = tf.convert_to_tensor(step)
        later = step - tf.cast(self.warmup_steps, step.dtype)
        peak = tf.constant(self.scaled_rate, tf.float32)
        begin = tf.constant(self.start_rate, tf.float32)
        done = tf.cast(step, tf.float32) / max(self.warmup_steps, 1) if self.mode == "gradual" else 0.0
        after = peak
        if self.after is not None:
            after = tf.cast(self.after(tf.maximum(later, tf.zeros_like(later))), tf.float32)
        return tf.where(later < 0, begin + (peak - begin) * done, after)

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same schedule."""
        names = ("base_rate", "reference_batch", "global_batch", "warmup_steps", "mode", "start_rate")
        after = None if self.after is None else KERAS.saving.serialize_keras_object(self.after)
        return {**{name: getattr(self, name) for name in names}, "after": after}

    @classmethod
    def from_config(cls, config: Config) -> LinearScalingWarmup:
        """Makes the schedule that `get_config` describes."""
        after = config.get("after")
        return cls(**{**config, "after": after and KERAS.saving.deserialize_keras_object(after)})


def _global_batch(
    whole: Optional[int], per_replica: Optional[int], strategy: Optional[tf.distribute.Strategy]
) -> int:
    if (whole is None) == (per_replica is None):
        raise OptionsError(
            "LinearScalingWarmup needs either global_batch, or per_replica_batch and a strategy; got "
            f"global_batch={whole!r} and per_replica_batch={per_replica!r}"
        )
    if whole is not None:
        return count("global_batch", whole)
    replicas = (strategy or tf.distribute.get_strategy()).num_replicas_in_sync
    return count("per_replica_batch", per_replica) * int(replicas)


def _warmup_steps(steps: Optional[int], epochs: Optional[float], steps_per_epoch: Optional[int]) -> int:
    if (steps is None) == (epochs is None) or (epochs is None) != (steps_per_epoch is None):
        raise OptionsError(
            "LinearScalingWarmup needs either warmup_steps, or warmup_epochs and steps_per_epoch; got "
            f"warmup_steps={steps!r}, warmup_epochs={epochs!r} and steps_per_epoch={steps_per_epoch!r}"
        )
    if steps is not None:
        return count("warmup_steps", steps, least=0)
    of_epoch = count("steps_per_epoch", steps_per_epoch)
    return round(not_negative("warmup_epochs", epochs) * of_epoch)


def _schedule(after: Unchecked, peak: float) -> Optional[LearningRateSchedule]:
    made = after(peak) if callable(after) and not isinstance(after, _Schedule) else after
    if made is not None and not isinstance(made, _Schedule):
        raise OptionsError(
            f"after must be None, a {_Schedule.__module__.partition('.')[0]} LearningRateSchedule, or a function of the "
            f"scaled rate that returns one; got {made!r}"
        )
    return made
