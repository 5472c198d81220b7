"""Iterators that end on a thread of their own."""

from __future__ import annotations

import threading
from typing import Iterator

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


def test_who_drops_an_iterator_does_not_wait_for_its_end() -> None:
    numbers = Numbers()
    iterator = iter(with_iterators_released(numbers.dataset()))
    assert next(iterator).numpy() == 1
    del iterator  # its thread reads ahead, and waits until `go` is set
    assert not numbers.ended.is_set()
    numbers.go.set()
    assert numbers.ended.wait(_SECONDS)


def test_an_iterator_that_is_dropped_in_the_middle_ends() -> None:
    ended = threading.Event()

    def forever() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    dataset = tf.data.Dataset.from_generator(forever, output_signature=tf.TensorSpec([], tf.int32)).prefetch(
        2
    )
    iterator = iter(with_iterators_released(dataset))
    assert next(iterator).numpy() == 1
    assert not ended.is_set()
    del iterator
    assert ended.wait(_SECONDS)
