"""Iterators that end on a thread of their own."""

from __future__ import annotations

import os
import subprocess
import sys
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


# The finalizer takes longer than the process waits for it, and ends while the interpreter is ending.
_EXITS_EARLY = """
import builtins, time
import pytest
import tensorflow as tf
from tensorflow.python.data.ops.from_generator_op import _GeneratorDataset
from tf_strategies.native.release import with_iterators_released

class SlowEnd:
    def __del__(self, sleep=time.sleep):
        sleep(4)

def finalize(size):
    return tf.linalg.svd(tf.random.stateless_normal([size, size], [1, 2]), compute_uv=False)[0] > 0

def use_an_iterator():
    spec = tf.TensorSpec([], tf.int32)
    dataset = _GeneratorDataset(tf.constant(3000), tf.identity, tf.identity, finalize, spec)
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    iterator = iter(with_iterators_released(dataset.with_options(options)))
    assert next(iterator) == 3000

builtins.slow_end = SlowEnd()
use_an_iterator()
print("dropped", flush=True)
"""


def test_a_process_ends_well_while_an_iterator_is_ending() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _EXITS_EARLY], capture_output=True, text=True, timeout=100, check=False
    )
    assert (run.returncode, run.stdout) == (0, "dropped\n"), run.stderr


# The thread of the iterator is in the middle of a batch while the iterator is dropped. Freed memory is overwritten, so that
# TensorFlow 2.21 crashes here if the dataset is not kept.
_DROPS_WHILE_READING = """
import sys
import tensorflow as tf
from tf_strategies.native.release import keep_datasets_of_iterators, with_iterators_released

options = tf.data.Options()
options.experimental_optimization.apply_default_optimizations = False
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
source = tf.data.Dataset.range(100_000_000).batch(200_000).with_options(options)
dataset = tf.distribute.OneDeviceStrategy("CPU:0").experimental_distribute_dataset(source)
if sys.argv[1] == "ours":
    dataset = with_iterators_released(dataset)
else:
    keep_datasets_of_iterators()
for _ in range(10):
    iterator = iter(dataset)
    next(iterator)
    del iterator
print("ended", flush=True)
"""


@pytest.mark.parametrize("strategy", ["ours", "of TensorFlow"])
def test_an_iterator_of_a_device_reads_no_freed_dataset(strategy: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _DROPS_WHILE_READING, strategy],
        env={**os.environ, "MALLOC_PERTURB_": "165"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "ended\n"), run.stderr
