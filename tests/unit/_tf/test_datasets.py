"""Tests how distributed datasets tell the rows of their parts."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_strategies._tf import compat

pytestmark = pytest.mark.any_line


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["CPU:0"])


def parts_of(
    strategy: tf.distribute.Strategy, batch: int, repeats: int = 1
) -> tf.distribute.DistributedDataset:
    """Returns batches, split between two workers, of which this one has half of the rows."""
    rows = tf.data.Dataset.range(3 * batch).batch(batch, drop_remainder=True).repeat(repeats)
    context = tf.distribute.InputContext(2, 0, 2)
    return compat.distribute_dataset(
        rows,
        strategy.extended._input_workers,
        strategy,
        tells_rows=False,
        num_replicas_in_sync=2,
        input_context=context,
    )


def test_one_trace_suits_parts_of_any_size(strategy: tf.distribute.Strategy) -> None:
    read = tf.function(lambda iterator: next(iterator))
    parts = [parts_of(strategy, batch) for batch in (4, 6)]
    assert [len(read(iter(each))) for each in parts] == [2, 3]
    assert read.experimental_get_tracing_count() == 1


def test_endless_data_keep_the_shape_that_workers_have_agreed_on(strategy: tf.distribute.Strategy) -> None:
    assert parts_of(strategy, 4, repeats=-1).element_spec.shape == [2]
