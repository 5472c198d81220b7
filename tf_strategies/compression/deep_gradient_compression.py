"""Deep gradient compression: top-k with momentum correction."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, choice, flag, whole
from tf_strategies.compression.entry_lists import VALUE_FORMATS, SelectedEntries
from tf_strategies.compression.ratio import checked_ratio, entries, warmed_up
from tf_strategies.compression.sparse_all_reduce import EXCHANGES, lists_for
from tf_strategies.errors import OptionsError
from tf_strategies.native.top_k import top_k
from tf_strategies.types import TensorOrSlices, Unchecked

__all__ = ["DeepGradientCompression"]


class DeepGradientCompression(Compressor):
    """Sends the largest entries of velocities instead of gradients: 99.9 % sparse at the accuracy of SGD with momentum.

    For each variable a worker keeps a velocity u ← momentum · u + g, and v ← v + u, which is what it has not sent yet. It
    sends the k largest entries of v, and sets v and u to zero there. The optimizer must therefore be SGD without momentum;
    `fit` refuses any other. Variables that are not compressed (biases, small ones) get their momentum after the sum. Rows of
    embeddings (`tf.IndexedSlices`) are made dense first. With ratio 1 nothing is set to zero; that is SGD with momentum.

    Args:
        ratio: the part of the entries that is sent, above 0 and at most 1.
        momentum: from 0 to below 1.
        clip_norm: the limit of the norm of the whole gradient. Each of P workers limits its own part to clip_norm / √P
            before it is added to u. P is 1 if the workers are asynchronous. None: no limit.
        warmup_steps: the number of steps of the warm-up. It has four equal stages, which send 1/4, 1/16, 1/64 and 1/256
            of the entries. The paper takes 4 epochs.
        nesterov: whether to use Nesterov momentum: u ← momentum · (u + g), v ← v + u + g.
        value_format: "float32", "float16" or "int8", as in TopK. Rounding errors stay in v.
        exchange: "all_gather" or "reduce_scatter", as in TopK. Sums that are not applied are added to v of one worker.
        sampled: whether the threshold is estimated from a sample; then 0.8 k to 1.25 k entries are sent.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Lin et al. 2018, "Deep gradient compression: reducing the communication bandwidth for distributed training",
        algorithm 4.

    Example:
        >>> compression = tfs.compression.DeepGradientCompression(0.001, momentum=0.9, warmup_steps=2000)
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=compression)
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        ...     model.compile(keras.optimizers.SGD(0.1), "mse")
        >>> history = model.fit(dataset, verbose=0)
    """

    takes_slices = True

    def __init__(
        self,
        ratio: float = 0.001,
        momentum: float = 0.9,
        *,
        clip_norm: Optional[float] = None,
        warmup_steps: int = 0,
        nesterov: bool = False,
        value_format: str = "float32",
        exchange: str = "all_gather",
        sampled: bool = False,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        if callable(ratio):
            raise OptionsError(f"ratio must be a number above 0 and at most 1; got {ratio!r}")
        self.ratio = float(checked_ratio(ratio))
        self.momentum = _number("momentum", momentum)
        if not 0 <= self.momentum < 1:
            raise OptionsError(f"momentum must be from 0 to below 1; got {momentum!r}")
        self.clip_norm = None if clip_norm is None else _number("clip_norm", clip_norm)
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise OptionsError(f"clip_norm must be above 0, or None; got {clip_norm!r}")
        self.warmup_steps = whole("warmup_steps", warmup_steps, least=0)
        self.nesterov = flag("nesterov", nesterov)
        self.value_format = choice("value_format", value_format, VALUE_FORMATS)
        self.exchange = choice("exchange", exchange, EXCHANGES)
        self.sampled = flag("sampled", sampled)

    @property
    def slots(self):
        return ("velocity", "unsent")

    @property
    def dense_slots(self):
        return ("velocity",)

    @property
    def replaces_momentum(self):
        return self.momentum

    def prepare(self, values: Sequence[TensorOrSlices], workers: int) -> List[TensorOrSlices]:
        if self.clip_norm is None:
            return list(values)
        limit = self.clip_norm / math.sqrt(workers)
        squares = [tf.reduce_sum(tf.square(tf.cast(value, tf.float32))) for value in values]
        factor = limit / tf.maximum(tf.sqrt(tf.add_n(squares)), limit) if squares else 1.0
        return [tf.cast(tf.cast(value, tf.float32) * factor, value.dtype) for value in values]

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        found = [self._select(gradient, step) for gradient in gradients]
        lists = lists_for(self.exchange, [selected for selected, _ in found], self.value_format, workers)
        totals = lists.sum_over(workers)
        for number, (gradient, (_, remaining)) in enumerate(zip(gradients, found)):
            gradient.slots["unsent"].assign(lists.unsent(number, remaining), read_value=False)
        return totals

    def after(self, total: tf.Tensor, slots: Dict[str, tf.Variable]) -> tf.Tensor:
        velocity, update = self._accelerate(total, slots["velocity"])
        slots["velocity"].assign(velocity, read_value=False)
        return update

    def _select(self, gradient: Gradient, step: tf.Tensor) -> Tuple[SelectedEntries, tf.Tensor]:
        """Returns the entries that are sent, and the rest [n]."""
        elements = gradient.value.shape[0]
        count = entries(warmed_up(self.ratio, self.warmup_steps), elements, step)
        velocity, update = self._accelerate(gradient.value, gradient.slots["velocity"])
        found = top_k(update, gradient.slots["unsent"].read_value(), count, sampled=self.sampled)
        everything_sent = tf.equal(tf.size(found.indices), elements)
        stays = tf.where(everything_sent, tf.gather(velocity, found.indices), 0.0)
        masked = tf.tensor_scatter_nd_update(velocity, found.indices[:, tf.newaxis], stays)
        gradient.slots["velocity"].assign(masked, read_value=False)
        return SelectedEntries(found.indices, found.values, elements, count), found.remaining

    def _accelerate(self, gradient: tf.Tensor, velocity: tf.Variable) -> Tuple[tf.Tensor, tf.Tensor]:
        """Returns the next velocity, and the update of the variable."""
        if self.nesterov:
            following = self.momentum * (velocity + gradient)
            return following, following + gradient
        following = self.momentum * velocity + gradient
        return following, following


def _number(name: str, value: Unchecked) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise OptionsError(f"{name} must be a number; got {value!r}")
    return float(value)
