"""Computes trust ratios, momentum and moments: the formulas of the optimizers, on tensors."""

from __future__ import annotations

import math
from typing import Optional, Tuple

import tensorflow as tf

__all__ = ["adam_direction", "lamb_ratio", "lars_ratio", "with_momentum"]


def with_momentum(
    direction: tf.Tensor,
    velocity: tf.Tensor,
    rate: tf.Tensor,
    *,
    momentum: float,
    nesterov: bool,
    rate_in_velocity: bool,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Returns the change of a weight, and its new velocity.

    With the rate γ inside of the velocity, v ← m·v + γ·d and the change is v. With the rate outside, v ← m·v + d and the
    change is γ·v. The two differ only when the rate changes. Goyal et al. 2017 (§3, equations 9 and 10) correct the first by
    m·γ[t+1]/γ[t] in place of m, which makes it equal to the second.

    Args:
        direction: d, [...].
        velocity: v before the step, [...].
        rate: γ, [].
        momentum: m.
        nesterov: whether the change is m·v + γ·d (with the rate outside, γ·(m·v + d)) of the new v.
        rate_in_velocity: which of the two it is.
    """
    scaled = rate * direction if rate_in_velocity else direction
    velocity = momentum * velocity + scaled
    change = momentum * velocity + scaled if nesterov else velocity
    return (change if rate_in_velocity else rate * change), velocity


def lars_ratio(weight: tf.Tensor, gradient: tf.Tensor, *, trust: float, decay: float) -> tf.Tensor:
    """Returns η·‖w‖ / (‖g‖ + β·‖w‖), []; 1 if a norm is 0.

    References:
        You et al. 2017, "Large batch training of convolutional networks", equation 6.
    """
    of_weight, of_gradient = tf.norm(weight), tf.norm(gradient)
    usable = (of_weight > 0) & (of_gradient > 0)
    divisor = tf.where(usable, of_gradient + decay * of_weight, tf.ones_like(of_weight))
    return tf.where(usable, trust * of_weight / divisor, tf.ones_like(of_weight))


def lamb_ratio(
    weight: tf.Tensor, change: tf.Tensor, bounds: Optional[Tuple[float, float]] = None
) -> tf.Tensor:
    """Returns φ(‖w‖) / ‖change‖, []; 1 if either is 0. φ clips to the bounds, or changes nothing.

    References:
        You et al. 2020, "Large batch optimization for deep learning", algorithm 2.
    """
    of_weight, of_change = tf.norm(weight), tf.norm(change)
    if bounds is not None:
        of_weight = tf.clip_by_value(of_weight, *bounds)
    usable = (of_weight > 0) & (of_change > 0)
    divisor = tf.where(usable, of_change, tf.ones_like(of_change))
    return tf.where(usable, of_weight / divisor, tf.ones_like(of_weight))


def adam_direction(
    gradient: tf.Tensor,
    first: tf.Tensor,
    second: tf.Tensor,
    number: tf.Tensor,
    *,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns m̂ / (√v̂ + ε) with the moments corrected for their start at 0, [...], and both new moments.

    Args:
        gradient: g, [...].
        first: m before the step, [...].
        second: v before the step, [...].
        number: the number of the step, from 1, [].
        beta_1: of m ← β1·m + (1 − β1)·g.
        beta_2: of v ← β2·v + (1 − β2)·g².
        epsilon: ε.
    """
    first = beta_1 * first + (1 - beta_1) * gradient
    second = beta_2 * second + (1 - beta_2) * gradient**2
    unbiased_first = first / _one_minus_power(beta_1, number)
    unbiased_second = second / _one_minus_power(beta_2, number)
    return unbiased_first / (tf.sqrt(unbiased_second) + epsilon), first, second


def _one_minus_power(beta: float, number: tf.Tensor) -> tf.Tensor:
    """Returns 1 − β^t. In float32, 1 − 0.999 itself would be wrong by 1e-5 of it."""
    return tf.ones_like(number) if beta == 0 else -tf.math.expm1(number * math.log(beta))
