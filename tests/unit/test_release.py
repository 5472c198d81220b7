"""Iterators that end on a thread of their own."""

from __future__ import annotations

import threading
from typing import Iterator

import pytest
import tensorflow as tf

from tf_strategies.native.release import with_iterators_released

_SECONDS = 30.0


class Numbers:
    """A source that waits after its first number; it tells when its generator has ended."""

    def __init__(self) -> None:
        self.go, self.ended = threading.Event(), threading.Event()

    def __call__(self) -> Iterator[int]:
        try:
            yield 1
            self.go.wait(_SECONDS)
            yield 2
        finally:
            self.ended.set()

    def dataset(self) -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(self, output_signature=tf.TensorSpec([], tf.int32)).prefetch(2)


@pytest.mark.parametrize("distributed", [False, True])
def test_who_drops_an_iterator_does_not_wait_for_its_end(strategy, distributed: bool) -> None:
    numbers = Numbers()
    data = numbers.dataset()
    if distributed:
        data = strategy.distribute_datasets_from_function(lambda _: numbers.dataset())
    iterator = iter(with_iterators_released(data))
    if not distributed:
        assert next(iterator).numpy() == 1
    del iterator  # its thread reads ahead, and waits until `go` is set
    assert not numbers.ended.is_set()
    numbers.go.set()
    assert numbers.ended.wait(_SECONDS)


def test_an_iterator_that_a_function_uses_gives_all_elements() -> None:
    data = with_iterators_released(tf.data.Dataset.range(5))

    @tf.function
    def total(iterator):
        return next(iterator) + next(iterator)

    iterator = iter(data)
    assert int(total(iterator)) == 1
    assert [int(each) for each in iterator] == [2, 3, 4]
    assert [int(each) for each in data] == [0, 1, 2, 3, 4]
