"""Calls that reduce, broadcast, gather and exchange numbers, arrays and tensors."""

from __future__ import annotations

import operator
import pprint
from typing import Iterable, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from tf_strategies.collective.calls.base import Calls
from tf_strategies.collective.calls.product import product
from tf_strategies.collective.calls.values import Leaf, in_packs, joined, leaf_of, taken_apart
from tf_strategies.types import Structure, TensorLike

__all__ = ["ArrayCalls"]

REDUCTIONS = ("sum", "mean", "min", "max", "product")
_REDUCED = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64)


class ArrayCalls(Calls):
    """Offers collectives of NumPy arrays, numbers and eager tensors."""

    def all_reduce(self, value: Structure, reduction: str = "sum") -> Structure:
        """Returns the value, reduced elementwise over all workers. Every worker gets the same bits.

        It also raises the errors of `barrier`.

        Args:
            value: a number, a NumPy array, an eager tensor or a variable of float16, bfloat16, float32, float64, int32 or
                int64, or a structure of them, as in `tf.nest`. Structures, shapes and dtypes must be equal on all workers.
            reduction: "sum", "mean", "min", "max" or "product". The mean of integers is a float64.

        Returns:
            The same structure. The result of an array is an array, of a number a number, and of a tensor or a variable a
            tensor.

        Raises:
            TypeError: the value has a type or dtype that cannot be reduced.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.all_reduce({"loss": 0.5, "rows": 32}, "max")
            {'loss': 0.5, 'rows': 32}
        """
        call = "all_reduce"

        def prepare() -> Structure:
            if reduction not in REDUCTIONS:
                raise ValueError(
                    f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}; got {reduction!r}"
                )
            return tf.nest.map_structure(lambda each: _summand(each, reduction), value)

        structure = self._prepare(call, prepare)
        self._meet(f"{call}({_shown(structure)}, {reduction!r})")
        with self._sending(call):
            return _like(
                structure,
                in_packs(tf.nest.flatten(structure), lambda tensors: self._reduced(tensors, reduction)),
            )

    def broadcast(self, value: Structure, root: int = 0) -> Structure:
        """Returns the value of worker `root` on every worker.

        It also raises the errors of `barrier`.

        Args:
            value: a number, a NumPy array, an eager tensor or a variable, or a structure of them, as in `tf.nest`. Structures,
                shapes and dtypes must be equal on all workers.
            root: the rank of the worker whose value is sent.

        Returns:
            The same structure, with results as of `all_reduce`.

        Raises:
            TypeError: the value has a type or dtype that cannot be sent.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.broadcast(np.array([1, 2]))
            array([1, 2])
        """
        call = "broadcast"
        structure = self._prepare(
            call, lambda: (self._checked_root(root), tf.nest.map_structure(leaf_of, value))[1]
        )
        self._meet(f"{call}({_shown(structure)}, root={root})")

        def send(tensors: List[tf.Tensor]) -> List[tf.Tensor]:
            return taken_apart(self._group.broadcast(joined(tensors), "strategy.broadcast", root), tensors)

        with self._sending(call):
            return _like(structure, in_packs(tf.nest.flatten(structure), send))

    def all_gather(self, value: Structure) -> Structure:
        """Returns the values of all workers, concatenated along axis 0 by rank.

        It also raises the errors of `barrier`.

        Args:
            value: an array, an eager tensor or a variable of at least one dimension, or a structure of them. All
                dimensions except the first must be equal on all workers.

        Returns:
            The same structure, with results as of `all_reduce`.

        Raises:
            TypeError: the value has a type or dtype that cannot be sent.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.all_gather(np.array([1, 2]))
            array([1, 2])
        """
        call = "all_gather"
        structure = self._prepare(call, lambda: tf.nest.map_structure(_rows, value))
        self._meet(f"{call}({_shown(tf.nest.map_structure(_RowsOf, structure))})")
        with self._sending(call):
            return tf.nest.map_structure(
                lambda leaf: leaf.restore(self._group.all_gather(leaf.tensor, "strategy.all_gather")),
                structure,
            )

    def all_to_all(
        self, value: TensorLike, splits: Optional[Iterable[int]] = None
    ) -> Tuple[TensorLike, TensorLike]:
        """Sends some rows of an array or a tensor to each worker, itself included.

        It also raises the errors of `barrier`.

        Args:
            value: [rows, ...], the rows for worker 0 first. All dimensions except the first must be equal on all workers.
            splits: the number of rows for each worker. By default each gets as many.

        Returns:
            The rows that the workers have sent to this one, by rank, and the number of rows from each, [workers] int64. Both
            are arrays if the value is an array, otherwise tensors.

        Raises:
            TypeError: the value has a type or dtype that cannot be sent.
            ValueError: the splits do not add up to the rows.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.all_to_all(np.array([1, 2]), splits=[2])
            (array([1, 2]), array([2]))
        """
        call = "all_to_all"

        def prepare() -> Tuple[Leaf, np.ndarray]:
            leaf = _rows(value)
            return leaf, _lengths(leaf, splits, self._group.size)

        leaf, lengths = self._prepare(call, prepare)
        self._meet(f"{call}({_RowsOf(leaf)!r})")
        with self._sending(call):
            received, counts = self._group.all_to_all(
                leaf.tensor, tf.constant(lengths), "strategy.all_to_all"
            )
            return leaf.restore(received), counts if leaf.is_tensor else counts.numpy()

    def _reduced(self, tensors: List[tf.Tensor], reduction: str) -> List[tf.Tensor]:
        if reduction == "product":
            return taken_apart(product(self._group, joined(tensors)), tensors)
        return self._group.all_reduce(tensors, "strategy.all_reduce", reduction=reduction)


class _RowsOf:
    """Shows a leaf without its first dimension, which may differ between workers."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf

    def __repr__(self) -> str:
        sizes = ["rows", *map(str, self._leaf.tensor.shape.as_list()[1:])]
        return f"{self._leaf.tensor.dtype.name}[{', '.join(sizes)}]"


def _summand(value: TensorLike, reduction: str) -> Leaf:
    leaf = leaf_of(value)
    if leaf.tensor.dtype not in _REDUCED:
        allowed = ", ".join(dtype.name for dtype in _REDUCED)
        raise TypeError(f"cannot reduce {leaf.tensor.dtype.name}; convert it to one of {allowed}")
    return leaf.cast(tf.float64) if reduction == "mean" and leaf.tensor.dtype.is_integer else leaf


def _rows(value: TensorLike) -> Leaf:
    leaf = leaf_of(value)
    if leaf.tensor.shape.rank == 0:
        raise ValueError(f"cannot join scalars; got {value!r}: give it a dimension")
    return leaf


def _lengths(leaf: Leaf, splits: Optional[Iterable[int]], size: int) -> np.ndarray:
    rows = leaf.tensor.shape[0]
    if splits is None:
        if rows % size:
            raise ValueError(f"{rows} rows cannot be divided by {size} workers; give splits")
        return np.full(size, rows // size, np.int64)
    lengths = [operator.index(each) for each in np.asarray(splits).tolist()]
    if len(lengths) != size or min(lengths) < 0 or sum(lengths) != rows:
        raise ValueError(
            f"splits must be {size} numbers of rows, one for each worker, which add up to {rows}; got {lengths}"
        )
    return np.array(lengths, np.int64)


def _like(structure: Structure, results: List[TensorLike]) -> Structure:
    return tf.nest.pack_sequence_as(structure, results)


def _shown(structure: Structure) -> str:
    """Returns a structure in messages, such as `{'a': float32[3]}`, with the keys of a dict in order."""
    return pprint.saferepr(structure)
