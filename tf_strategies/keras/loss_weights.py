"""A replica's loss counts by its rows.

Keras divides the mean loss of each replica by the number of replicas, so that gradients add up to those of the mean over the
joint batch: right when all have as many rows. Here each counts by its share of the rows, so it is right also for a last
batch that does not divide evenly, and for workers that have run out of data.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Optional

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy

__all__ = ["install"]


def install(losses: ModuleType) -> None:
    """Wraps the functions with which a Keras scales losses by the number of replicas, and back."""
    losses.scale_loss_for_distribution = _scaled(losses.scale_loss_for_distribution)
    if hasattr(losses, "unscale_loss_for_distribution"):
        losses.unscale_loss_for_distribution = _unscaled(losses.unscale_loss_for_distribution)


def _scaled(original: Callable) -> Callable:
    @functools.wraps(original)
    def scale(value: Any) -> Any:
        share = _share()
        scaled = original(value)
        return scaled if share is None else scaled * tf.cast(share, scaled.dtype)

    return scale


def _unscaled(original: Callable) -> Callable:
    @functools.wraps(original)
    def unscale(value: Any) -> Any:
        share = _share()
        unscaled = original(value)
        return unscaled if share is None else tf.math.divide_no_nan(unscaled, tf.cast(share, unscaled.dtype))

    return unscale


def _share() -> Optional[tf.Tensor]:
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, GroupStrategy) or tf.distribute.in_cross_replica_context():
        return None
    return strategy.share_of_batch()
