"""Passes the first batches of each iteration over a dataset to a function."""

from __future__ import annotations

import itertools
from typing import Callable

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.native import loader
from tf_strategies.types import Structure

__all__ = ["show_first_batches"]

_numbers = itertools.count()


def show_first_batches(
    dataset: tf.data.Dataset, batches: int, show: Callable[[tf.Tensor, tf.Tensor, Structure], None]
) -> tf.data.Dataset:
    """Returns a dataset with the same elements, which passes its first elements to a function in each iteration.

    Iterations are counted when iterators are made, even if they are not used.

    Args:
        dataset: the dataset.
        batches: the number of elements to pass.
        show: the function. It is traced once, and called with the number of the iteration and of the element,
            both [] int64 from 0, and with the element. It lives as long as the returned dataset or an
            iterator of it.
    """
    number = tf.TensorSpec([], tf.int64)

    @tf.function(input_signature=[number, number, *compat.flat_specs(dataset.element_spec)], autograph=False)
    def function(iteration: tf.Tensor, batch: tf.Tensor, *components: tf.Tensor) -> tf.Tensor:
        show(iteration, batch, compat.element_of(dataset.element_spec, components))
        return tf.constant(0)

    traced = function.get_concrete_function()
    with tf.device(
        "/device:CPU:0"
    ):  # where datasets are; without it, eager TensorFlow would copy them to a GPU
        variant = loader.library().tf_strategies_first_batches_dataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            other_arguments=traced.captured_inputs,
            f=traced,
            batches=batches,
            watch=next(_numbers),
            output_types=[spec.dtype for spec in compat.flat_specs(dataset.element_spec)],
            output_shapes=[spec.shape for spec in compat.flat_specs(dataset.element_spec)],
        )
    return compat.OwnDataset(dataset, variant, keep=(traced, show))
