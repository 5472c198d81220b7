"""The largest entries of each gradient."""

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
    """Of each gradient only the entries of largest magnitude travel; the rest is added to the next one (error feedback).

    Each worker sends k = ratio · n entries of a variable of n elements.

    Args:
        ratio: the part of the entries that is sent, above 0 and at most 1; or a function of the step, [] int64, a
            learning-rate schedule for example.
        error_feedback: whether what is not sent is kept and added to the next gradient. Without, training hardly works.
        value_format: how values are written: "float32"; "float16", or "int8" with a scale for each 256 values, both rounded to
            the nearest; what that changes is kept too. An index takes about log2(n / k) + 2 bits.
        exchange: "all_gather": a worker receives the entries of all others, and applies their sum. "reduce_scatter": each adds
            up a region of equal length and sends on its largest sums, so that a worker receives about 2 k entries however many
            workers there are (more where the entries crowd in one region), and about k are applied; the worker that added the
            others up keeps them. On parameter servers, which receive from each by itself, both are the same.
        sampled: find the threshold from a sample: between 0.8 k and 1.25 k entries.
        min_elements: variables with fewer elements, and those of less than two dimensions, are exchanged as they are.
        predicate: `(name, shape) -> bool` chooses the variables instead.

    Raises:
        OptionsError: an argument has a value it cannot have.

    References:
        Aji & Heafield 2017, "Sparse communication for distributed gradient descent"; Stich et al. 2018, "Sparsified SGD with
        memory"; for "reduce_scatter" Li & Hoefler 2022, "Near-optimal sparse allreduce for distributed deep learning".
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
        """Returns what is sent, and [n] what is not."""
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
