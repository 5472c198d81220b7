"""Gradients on their way through a compressor: which go, what is remembered of them, and what happens when one is not finite."""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Dict, List, Sequence

import tensorflow as tf

from tf_strategies.collective.gradient_state import GradientState
from tf_strategies.collective.sparse_rows import HOST
from tf_strategies.compression import Compressor
from tf_strategies.compression.base import Gradient

__all__ = ["CompressedGradients"]

_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


class CompressedGradients:
    """Adds up the gradients of variables over workers.

    Where one that is to be compressed is not finite on any worker, nothing is exchanged of them and nothing remembered: all
    are NaN on all workers, so that a loss scale skips the step as if there had been no compression.

    Args:
        group: the workers.
        compressor: what makes gradients small.
        add_up: gives the sums over workers of tensors and IndexedSlices as they are; a collective, whose name ends with the text
            given, which must be the same on all of them.
    """

    def __init__(
        self, group: Any, compressor: Compressor, add_up: Callable[[Sequence[Any], str], List[Any]]
    ) -> None:
        self._group = group
        self._compressor = compressor
        self._add_up = add_up
        self._state = GradientState()
        self._layout = ""
        self._names: Dict[str, str] = {}

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def name(self, variable: Any, name: str) -> None:
        """What a variable is called, where it does not say so itself."""
        self._names[variable._unique_id] = name

    def add_up(self, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return self._add_up(tensors, self._layout)

    def gather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        return self._group.all_gather(tensor, name=name + self._layout)

    def all_to_all(self, tensor: tf.Tensor, lengths: tf.Tensor, name: str) -> tf.Tensor:
        return self._group.all_to_all(tensor, lengths, name=name + self._layout)[0]

    def sums(self, values: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """The sums over workers of values, of which some are gradients.

        Args:
            values: tensors and IndexedSlices.
            variables: of each that is a gradient the variable, of others None.
        """
        values = self._prepared(values, variables)
        mine = [i for i, variable in enumerate(variables) if variable is not None]
        if len({variables[i]._unique_id for i in mine}) < len(mine):
            raise ValueError("a variable has two gradients in one step: add them up before they are applied")
        taken = [i for i in mine if self._takes(values[i], variables[i])]
        self._layout = _in_letters([(i, i in taken, tuple(variables[i].shape)) for i in mine])
        found: Dict[int, Any] = {}
        with tf.device(HOST):
            plain = [i for i in range(len(values)) if i not in taken]
            hidden = bool(taken) and not self._compressor.shows_what_is_not_finite
            flag = [_is_broken([values[i] for i in mine])] if hidden or self._remembers else []
            totals = self._add_up([*(values[i] for i in plain), *flag], self._layout)
            found.update(zip(plain, totals))
            later = [i for i in mine if i not in taken and self._comes_after(found[i])]
            compressed = self._gradients([values[i] for i in taken], [variables[i] for i in taken])

            def proceed() -> List[tf.Tensor]:
                results = [self._after(found[i], variables[i]) for i in later]
                if compressed:
                    results += self._compressor.add_up(compressed, self._state.step.read_value(), self)
                    self._state.step.assign_add(1, read_value=False)
                return results

            def give_up() -> List[tf.Tensor]:
                broken = [tf.fill(gradient.value.shape, float("nan")) for gradient in compressed]
                return [*(found[i] for i in later), *broken]

            if later or taken:
                # Finite gradients may add up to what is not: alike on all workers, as the sums are.
                broken = flag and (totals[-1] + _is_broken([found[i] for i in later]) > 0)
                results = tf.cond(broken, give_up, proceed) if flag else proceed()
                found.update(zip([*later, *taken], results))
            for i in taken:
                found[i] = tf.cast(tf.reshape(found[i], variables[i].shape), values[i].dtype)
        return [found[i] for i in range(len(values))]

    def state_of(self, variables: Sequence[Any]) -> List[tf.Variable]:
        """All that decides how gradients of these variables will go on, made where it is missing."""
        kept = [slot for variable in variables for slot in self._slots(variable).values()]
        return [self._state.step, *kept]

    def _prepared(self, values: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        values = [
            tf.convert_to_tensor(value)
            if isinstance(value, tf.IndexedSlices) and variable is not None and self._compressor.takes_slices
            else value
            for value, variable in zip(values, variables)
        ]
        mine = [i for i, variable in enumerate(variables) if variable is not None]
        prepared = self._compressor.prepare([values[i] for i in mine], self._group.size)
        for i, value in zip(mine, prepared):
            values[i] = value
        return values

    def _takes(self, value: Any, variable: Any) -> bool:
        return (
            variable is not None
            and isinstance(value, tf.Tensor)
            and value.dtype in _DTYPES
            and self._takes_variable(variable)
        )

    def _takes_variable(self, variable: Any) -> bool:
        return variable.shape.is_fully_defined() and self._compressor.takes(
            self._names.get(variable._unique_id, variable.name.partition(":")[0]),
            tuple(variable.shape.as_list()),
        )

    def _slots(self, variable: Any) -> Dict[str, tf.Variable]:
        if self._takes_variable(variable):
            return self._state.of(variable, self._compressor.slots, adds_up=True)
        return self._state.of(variable, self._compressor.dense_slots, adds_up=False)

    @property
    def _remembers(self) -> bool:
        return bool(self._compressor.slots or self._compressor.dense_slots)

    def _comes_after(self, total: Any) -> bool:
        return bool(self._compressor.dense_slots) and isinstance(total, tf.Tensor) and total.dtype in _DTYPES

    def _after(self, total: tf.Tensor, variable: Any) -> tf.Tensor:
        flat = tf.reshape(tf.cast(total, tf.float32), [-1])
        result = self._compressor.after(flat, self._slots(variable))
        return tf.cast(tf.reshape(result, tf.shape(total)), total.dtype)

    def _gradients(self, values: Sequence[tf.Tensor], variables: Sequence[Any]) -> List[Gradient]:
        return [
            Gradient(
                tf.reshape(tf.cast(value, tf.float32), [variable.shape.num_elements()]),
                number,
                self._slots(variable),
            )
            for number, (value, variable) in enumerate(zip(values, variables))
        ]


def _is_broken(values: Sequence[Any]) -> tf.Tensor:
    """[] float32: 0 if all that tensors and IndexedSlices hold is finite, else 1."""
    if not values:
        return tf.constant(0.0)
    held = [value.values if isinstance(value, tf.IndexedSlices) else value for value in values]
    finite = tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(each)) for each in held]))
    return tf.where(finite, 0.0, 1.0)


def _in_letters(value: Any) -> str:
    """A digest of a value, without digits, which do not count where workers compare names."""
    digest = hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()
    return " (" + digest.translate(str.maketrans("0123456789", "ghijklmnop")) + ")"
