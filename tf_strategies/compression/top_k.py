"""Top-k compression: sends the largest entries of each gradient."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, choice, flag
from tf_strategies.compression.entry_lists import VALUE_FORMATS, SelectedEntries
from tf_strategies.compression.ratio import Ratio, checked_ratio, entries
from tf_strategies.compression.sparse_all_reduce import EXCHANGES, lists_for
from tf_strategies.native.top_k import top_k

__all__ = ["TopK"]


class TopK(Compressor):
    """Sends the entries of largest magnitude of each gradient. The others are added to the next gradient (error feedback).

    Each worker sends k = ratio · n entries of a variable of n elements.

    Args:
        ratio: the part of the entries that is sent, above 0 and at most 1; or a function of the step, [] int64, such as a
            learning-rate schedule.
        error_feedback: whether entries that are not sent are kept and added to the next gradient. Without it, training hardly
            works.
        value_format: how values are encoded: "float32", "float16", or "int8" with a scale for each 256 values. The last two
            round to the nearest, and error feedback keeps the rounding errors. An index takes about log2(n / k) + 2 bits.
        exchange: how entries are added up. "all_gather": each worker receives the entries of all others and applies
            their sum. "reduce_scatter": each worker adds up one region and sends its largest sums. A worker then receives
            about 2 k entries for any number of workers, at most about 2.5 k (with `sampled` 2.75 k) wherever they lie. About k
            are applied; the worker of the region keeps the other sums. On parameter servers both are the same.
        sampled: whether the threshold is estimated from a sample; then 0.8 k to 1.25 k entries are sent.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Aji & Heafield 2017, "Sparse communication for distributed gradient descent"; Stich et al. 2018, "Sparsified SGD with
        memory"; for "reduce_scatter" Li & Hoefler 2022, "Near-optimal sparse allreduce for distributed deep learning".

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.TopK(0.01, value_format="float16"))
    """

    def __init__(
        self,
        ratio: Ratio = 0.01,
        *,
        error_feedback: bool = True,
        value_format: str = "float32",
        exchange: str = "all_gather",
        sampled: bool = False,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        self.ratio = checked_ratio(ratio)
        self.error_feedback = flag("error_feedback", error_feedback)
        self.value_format = choice("value_format", value_format, VALUE_FORMATS)
        self.exchange = choice("exchange", exchange, EXCHANGES)
        self.sampled = flag("sampled", sampled)

    @property
    def slots(self):
        return ("residual",) if self.error_feedback else ()

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        found = [self._select(gradient, step) for gradient in gradients]
        lists = lists_for(self.exchange, [selected for selected, _ in found], self.value_format, workers)
        totals = lists.sum_over(workers)
        if self.error_feedback:
            for number, (gradient, (_, remaining)) in enumerate(zip(gradients, found)):
                gradient.slots["residual"].assign(lists.unsent(number, remaining), read_value=False)
        return totals

    def _select(self, gradient: Gradient, step: tf.Tensor) -> Tuple[SelectedEntries, tf.Tensor]:
        """Returns the entries that are sent, and the rest [n]."""
        elements = gradient.value.shape[0]
        residual = gradient.slots.get("residual")
        wanted = entries(self.ratio, elements, step)
        found = top_k(
            gradient.value,
            tf.zeros([elements]) if residual is None else residual.read_value(),
            wanted,
            sampled=self.sampled,
        )
        return SelectedEntries(found.indices, found.values, elements, wanted), found.remaining
