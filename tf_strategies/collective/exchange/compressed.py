"""Adds up compressed gradients over workers, and handles gradients that are not finite."""

from __future__ import annotations

import hashlib
from typing import Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from tf_strategies.collective.exchange.sparse_rows import HOST
from tf_strategies.collective.worker_group import Collectives
from tf_strategies.compression import Compressor
from tf_strategies.compression.gradient_compression import GradientCompression, is_broken, require_one_each
from tf_strategies.session_graphs.program_order import in_program_order
from tf_strategies.types import TensorOrSlices

__all__ = ["CompressedGradients"]


class CompressedGradients:
    """Adds up the gradients of variables over workers.

    If a gradient that would be compressed is not finite on some worker, no gradient is exchanged and no state
    changes. All gradients are then NaN on all workers, so that a loss scale skips the step, as it would
    without compression.

    Args:
        group: the workers.
        compressor: the compressor.
        add_up: returns the sums over workers of uncompressed tensors and IndexedSlices. A collective with the
            given layout.
    """

    def __init__(
        self,
        group: Collectives,
        compressor: Compressor,
        add_up: Callable[[Sequence[TensorOrSlices], str], List[TensorOrSlices]],
    ) -> None:
        self._group = group
        self._compression = GradientCompression(compressor, HOST)
        self._add_up = add_up
        self._layout = ""

    @property
    def device(self) -> str:
        """The device that compresses gradients and keeps the state."""
        return self._compression.device

    @device.setter
    def device(self, device: str) -> None:
        self._compression.device = device

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def name(self, variable: tf.Variable, name: str) -> None:
        """Returns the name of a variable without a name."""
        self._compression.name(variable, name)

    def add_up(
        self, tensors: Sequence[tf.Tensor], then: Callable[[List[tf.Tensor]], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        return then(self._add_up(tensors, self._layout))

    def gather(
        self, tensor: tf.Tensor, name: str, then: Callable[[tf.Tensor], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        with tf.device(HOST):
            everyone = self._group.all_gather(tensor, name=name, layout=self._layout)
        return then(everyone)

    def all_to_all(self, tensor: tf.Tensor, lengths: tf.Tensor, name: str) -> tf.Tensor:
        with tf.device(HOST):
            return self._group.all_to_all(tensor, lengths, name=name, layout=self._layout)[0]

    def sums(
        self, values: Sequence[TensorOrSlices], variables: Sequence[Optional[tf.Variable]]
    ) -> List[TensorOrSlices]:
        """Returns the sums over workers of values, some of which are gradients.

        Args:
            values: tensors and IndexedSlices.
            variables: the variable of each gradient, and None for other values.
        """
        return in_program_order(lambda each: self._sums(each, variables), values)

    def _sums(
        self, values: Sequence[TensorOrSlices], variables: Sequence[Optional[tf.Variable]]
    ) -> List[TensorOrSlices]:
        values = list(values)
        mine = [i for i, variable in enumerate(variables) if variable is not None]
        prepared = self._compression.prepared([values[i] for i in mine], self._group.size)
        for i, value in zip(mine, prepared):
            values[i] = value
        require_one_each([variables[i] for i in mine])
        taken = [i for i in mine if self._compression.takes(values[i], variables[i])]
        self._layout = _digest([(i, i in taken, tuple(variables[i].shape)) for i in mine])
        compressor = self._compression.compressor
        found: Dict[int, TensorOrSlices] = {}
        with tf.device(self.device):
            plain = [i for i in range(len(values)) if i not in taken]
            hidden = bool(taken) and not compressor.shows_what_is_not_finite
            flag = [is_broken([values[i] for i in mine])] if hidden or self._compression.remembers else []
            totals = self._add_up([*(values[i] for i in plain), *flag], self._layout)
            found.update(zip(plain, totals))
            later = [i for i in mine if i not in taken and self._compression.comes_after(found[i])]
            compressed = [
                self._compression.gradient(values[i], number, variables[i]) for number, i in enumerate(taken)
            ]

            def proceed() -> List[tf.Tensor]:
                results = [self._compression.after(found[i], variables[i]) for i in later]
                if compressed:
                    step = self._compression.step
                    results += compressor.add_up(compressed, step.read_value(), self)
                    step.assign_add(1, read_value=False)
                return results

            def give_up() -> List[tf.Tensor]:
                broken = [tf.fill(gradient.value.shape, float("nan")) for gradient in compressed]
                return [*(found[i] for i in later), *broken]

            if later or taken:
                # The sum of finite gradients may be infinite. All workers have the same sum, so it is
                # infinite on all of them.
                broken = flag and (totals[-1] + is_broken([found[i] for i in later]) > 0)
                results = tf.cond(broken, give_up, proceed) if flag else proceed()
                found.update(zip([*later, *taken], results))
            for i in taken:
                found[i] = tf.cast(tf.reshape(found[i], variables[i].shape), values[i].dtype)
        return [found[i] for i in range(len(values))]

    def state_of(self, variables: Sequence[tf.Variable]) -> List[tf.Variable]:
        """Returns all state of the compressor for these variables. Makes missing state variables."""
        kept = [slot for variable in variables for slot in self._compression.slots(variable).values()]
        return [self._compression.step, *kept]


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()
