"""Scales the losses of a step so that their mean over replicas, weighted by rows, is the loss of the joint batch.

A mean over the rows of a batch needs no scaling. Three kinds of losses are multiplied by a factor:

- A mean that divides by valid time steps (masks) or by sample weights: the joint batch divides by their sum over all replicas.
- A compiled loss that is a sum (`reduction="sum"`), or that is not reduced at all: the joint batch's loss is the sum of the
  replicas' losses.
- In a loop of the user's own, with `strategy.run`, Keras 3 divides each mean by the number of replicas, as if all had the
  same number of rows.

`keras.metrics.Mean` counts a scalar that it is given without a sample weight once a step, not once a replica.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import threading
import weakref
from types import ModuleType
from typing import Any, Callable, Iterator, Optional, Set, Union

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.joint_rows import noting_joint_rows, were_joint_rows_taken
from tf_strategies.keras.joint_step import current_step
from tf_strategies.keras.types import Loss, Metric
from tf_strategies.types import Result, TensorLike

__all__ = [
    "apply_valid_mask_keras2",
    "call_compiled",
    "call_loss",
    "reduce_keras3",
    "scale_in_loops",
    "unscale_in_loops",
    "update_mean",
]

_MEANS = ("auto", "sum_over_batch_size", "mean")
_NO_MEANS = ("sum", "none", None)

_JOINT_ROWS = "give those the rows of all replicas, tfs.joint_rows(y_true) and tfs.joint_rows(y_pred)"
_ELSEWHERE = (
    "train those with CollectiveAllReduceStrategy, and give them the rows of all replicas, tfs.joint_rows(y_true) and "
    "tfs.joint_rows(y_pred)"
)

_OfLoss = Callable[[tf.Tensor], tf.Tensor]

_log = logging.getLogger("tf_strategies")
_warned: weakref.WeakKeyDictionary[tf.distribute.Strategy, Set[str]] = weakref.WeakKeyDictionary()
_this_thread = threading.local()


def call_compiled(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns the function that calls the losses of a compiled model, changed to mark these losses."""
    del keras

    @functools.wraps(original)
    def call(self: object, *args: Any, **kwargs: Any) -> tf.Tensor:
        with _depth(0):
            return original(self, *args, **kwargs)

    return call


def call_loss(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns `Loss.__call__`, in which sums of compiled losses are sums over the joint batch."""
    del keras

    @functools.wraps(original)
    def call(self: Loss, *args: Any, **kwargs: Any) -> tf.Tensor:
        depth = getattr(_this_thread, "depth", None)
        if depth is None:
            with noting_joint_rows():
                return original(self, *args, **kwargs)
        with _depth(depth + 1), noting_joint_rows(), _called(self, *args, **kwargs):
            loss = original(self, *args, **kwargs)
        step = current_step()
        if step is None or depth > 0 or getattr(self, "reduction", None) not in _NO_MEANS:
            return loss
        return _trusted(loss * tf.cast(step.factor_of_sums(), loss.dtype))

    return call


@contextlib.contextmanager
def _called(
    loss: Loss, y_true: object = None, y_pred: object = None, *_: object, **__: object
) -> Iterator[None]:
    """Opens a context in which warnings know the loss, and the number of its rows."""
    before = getattr(_this_thread, "loss", None), getattr(_this_thread, "rows", None)
    shape = getattr(y_pred, "shape", None)
    _this_thread.loss, _this_thread.rows = loss, None if shape is None else tf.TensorShape(shape)[:1]
    try:
        yield
    finally:
        _this_thread.loss, _this_thread.rows = before


def reduce_keras3(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns the function by which Keras 3 reduces losses. Means divide by the total over all replicas."""
    losses = importlib.import_module(f"{keras.__name__}.src.losses.loss")
    is_scaled_by_keras = hasattr(losses, "scale_loss_for_distribution")

    @functools.wraps(original)
    def reduce(
        values: tf.Tensor,
        sample_weight: Optional[TensorLike] = None,
        mask: Optional[TensorLike] = None,
        reduction: Optional[str] = "sum_over_batch_size",
        dtype: Union[str, tf.DType, None] = None,
    ) -> tf.Tensor:
        loss = original(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
        strategy = _strategy()
        if strategy is None and not _adds_up_gradients_alone():
            return loss
        _warn_of_scalar(values)
        # Keras does not reduce a batch that is known to be empty.
        if loss.shape == [0] and reduction not in ("none", None):
            loss = tf.reduce_sum(loss)
        if reduction in _MEANS:
            divisor = None if mask is None else tf.reduce_sum(tf.cast(mask, tf.float32))
        elif reduction == "mean_with_sample_weight":
            divisor = _total_weight(values, sample_weight, mask)
        else:
            divisor = None
        if strategy is None:
            _note_loss(divisor, values)
            return loss if divisor is None else _trusted(loss)
        if divisor is not None:
            loss = _trusted(loss * tf.cast(_correction(divisor), loss.dtype))
        if not is_scaled_by_keras and current_step() is None and reduction not in _NO_MEANS:
            loss = loss * tf.cast(_weight_in_loop(strategy), loss.dtype)
        return loss

    return reduce


def apply_valid_mask_keras2(
    original: Callable[..., tf.Tensor], keras: ModuleType
) -> Callable[..., tf.Tensor]:
    """Returns the function of Keras 2 that computes weights from a mask, scaled by the valid rows of all replicas."""
    del keras

    @functools.wraps(original)
    def apply_valid_mask(
        losses: tf.Tensor, sw: Optional[tf.Tensor], mask: Optional[tf.Tensor], reduction: Optional[str]
    ) -> tf.Tensor:
        weights = original(losses, sw, mask, reduction)
        strategy = _strategy()
        is_split = strategy is not None or _adds_up_gradients_alone()
        if is_split and reduction in (*_MEANS, *_NO_MEANS):  # metrics have others
            _warn_of_scalar(losses)
        is_masked = mask is not None and str(reduction) in _MEANS
        valid = tf.reduce_sum(tf.cast(mask, tf.float32)) if is_split and is_masked else None
        if strategy is None and is_split and reduction in (*_MEANS, *_NO_MEANS):
            _note_loss(valid, losses)
        if valid is None or strategy is None:
            return weights if valid is None else _trusted(weights)
        corrected = weights * tf.cast(_correction(valid), weights.dtype)
        return _trusted(tf.where(valid > 0, corrected, tf.zeros_like(corrected)))

    return apply_valid_mask


def _total_weight(
    values: tf.Tensor, sample_weight: Optional[TensorLike], mask: Optional[TensorLike]
) -> Optional[tf.Tensor]:
    """Returns the sum of the weights of all elements of `values`, [] float32, or None without weights."""
    if sample_weight is None and mask is None:
        return None
    weights = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)
    if mask is None:
        return tf.reduce_sum(weights)
    valid = tf.cast(mask, tf.float32)
    if sample_weight is not None:
        while weights.shape.rank < valid.shape.rank:
            weights = weights[..., tf.newaxis]
        while valid.shape.rank < weights.shape.rank:
            valid = valid[..., tf.newaxis]
    return tf.reduce_sum(valid * weights)


def _trusted(value: tf.Tensor) -> tf.Tensor:
    """Returns the value, known to the step as one that the rows of all replicas are part of."""
    step = current_step()
    if step is not None:
        step.trust(value)
    return value


def _correction(divisor: tf.Tensor) -> tf.Tensor:
    """Returns the factor that turns a mean over this replica's `divisor` into a mean over the divisor of all replicas.

    A collective.

    Args:
        divisor: the divisor of the replica's mean, [] float32.
    """
    divisor = tf.stop_gradient(divisor)
    total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, divisor)
    step = current_step()
    if step is not None:
        inverse = step.factor_of_sums()
    else:
        share = _strategy().share_of_batch()
        replicas = _strategy().replicas_in_graph()
        inverse = replicas if share is None else tf.math.divide_no_nan(tf.cast(replicas, share.dtype), share)
    return tf.math.divide_no_nan(divisor, total) * tf.cast(inverse, divisor.dtype)


def scale_in_loops(original: _OfLoss, keras: ModuleType) -> _OfLoss:
    """Returns the function by which Keras divides a loss by the number of replicas, changed to weight by rows."""
    del keras
    return _in_loops(original, tf.multiply)


def unscale_in_loops(original: _OfLoss, keras: ModuleType) -> _OfLoss:
    """Returns the inverse of `scale_in_loops`."""
    del keras
    return _in_loops(original, tf.math.divide_no_nan)


def _weight_in_loop(strategy: GroupStrategy) -> Union[float, tf.Tensor]:
    """Returns the weight of a replica's mean over rows in a custom loop.

    The weights of all replicas add up to 1.
    """
    share = strategy.share_of_batch()
    replicas = strategy.replicas_in_graph()
    return 1.0 / replicas if share is None else share / replicas


def _in_loops(original: _OfLoss, operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> _OfLoss:
    @functools.wraps(original)
    def scale(value: tf.Tensor) -> tf.Tensor:
        scaled = original(value)
        strategy = _strategy()
        share = None if strategy is None or current_step() is not None else strategy.share_of_batch()
        return scaled if share is None else operation(scaled, tf.cast(share, scaled.dtype))

    return scale


def update_mean(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Mean.update_state`, in which a scalar counts once in a step."""
    del keras

    @functools.wraps(original)
    def update_state(self: Metric, values: TensorLike, sample_weight: Optional[TensorLike] = None) -> Result:
        step = current_step()
        is_split = step is not None and (step.replicas > 1 or _strategy() is not None)
        if is_split and sample_weight is None and _is_scalar(values):
            if isinstance(values, tf.Tensor) and getattr(_this_thread, "depth", None) is None:
                step.note_metric(self.name, values)  # those of compiled losses are not the user's
            sample_weight = step.weight_in_metrics()
        return original(self, values, sample_weight=sample_weight)

    return update_state


def _adds_up_gradients_alone() -> bool:
    """Returns True in a training step of workers that exchange only gradients, at its end."""
    step = current_step()
    return step is not None and step.replicas > 1 and _strategy() is None


def _note_loss(divisor: Optional[tf.Tensor], values: tf.Tensor) -> None:
    step, depth = current_step(), getattr(_this_thread, "depth", None)
    if step is not None:
        step.note_loss(_name_of_loss(), divisor, values, depth == 1)


def _name_of_loss() -> str:
    return getattr(getattr(_this_thread, "loss", None), "name", None) or "of a function"


def _warn_of_scalar(values: TensorLike) -> None:
    """Warns once for each loss, by its name."""
    strategy, step = tf.distribute.get_strategy(), current_step()
    if were_joint_rows_taken() or not (_is_scalar(values) or _is_apart_from_rows(values)):
        return
    if _is_scalar(values):
        _trusted(values)  # one warning is enough
    name, warned = _name_of_loss(), _warned.setdefault(strategy, set())
    if name in warned or strategy.rank:
        return
    warned.add(name)
    _log.warning(
        "The loss %s does not return one number for each row of the batch, but %s. The numbers of the %d replicas are averaged, "
        "weighted by their rows. This equals the loss of the joint batch only if each number is a mean over rows. It does not "
        "for losses such as Dice or contrastive losses, which compare the rows of a batch with each other: %s",
        name,
        "one for the whole batch" if _is_scalar(values) else f"{values.shape[0]}",
        strategy.replicas_now if step is None else step.replicas,
        _ELSEWHERE if _adds_up_gradients_alone() else _JOINT_ROWS,
    )


def _is_apart_from_rows(values: TensorLike) -> bool:
    """Returns True if a loss has a fixed number of numbers, which is no multiple of the rows of its batch."""
    rows: Optional[tf.TensorShape] = getattr(_this_thread, "rows", None)
    if rows is None or rows.rank != 1 or not isinstance(values, tf.Tensor) or not values.shape.rank:
        return False
    count = values.shape[0]
    return bool(count) and (rows[0] is None or (rows[0] > 0 and count % rows[0] != 0))


def _is_scalar(values: TensorLike) -> bool:
    return isinstance(values, (int, float)) or getattr(getattr(values, "shape", None), "rank", None) == 0


def _strategy() -> Optional[GroupStrategy]:
    """Returns the strategy whose replica function runs here, if it spans several replicas."""
    if tf.distribute.in_cross_replica_context():
        return None
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, GroupStrategy) or strategy.replicas_now == 1:
        return None
    return strategy


@contextlib.contextmanager
def _depth(depth: int) -> Iterator[None]:
    before = getattr(_this_thread, "depth", None)
    _this_thread.depth = depth
    try:
        yield
    finally:
        _this_thread.depth = before
