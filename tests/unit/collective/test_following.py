"""Data that cannot be cut into other batches are refused before training begins."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tf_strategies._tf import compat
from tf_strategies.collective.input.following import batches_for
from tf_strategies.keras.fit_batches import ArrayRows, FitBatches
from tf_strategies.keras.rate_scale import scaled_rates

_ROWS = tf.data.Dataset.from_tensor_slices((np.ones([50, 3], np.float32), np.arange(50)))


def _made(
    dataset: tf.data.Dataset, steps: Optional[int] = None, arrays: Optional[ArrayRows] = None
) -> FitBatches:
    return batches_for(dataset, arrays, steps, began_with=3, workers=2, distribute=lambda each: each)


def _by_file(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    return dataset.with_options(options)


def _padded(rows: tf.data.Dataset) -> tf.data.Dataset:
    return rows.map(lambda x, y: (tf.ones([y]), y)).padded_batch(6)


@pytest.mark.parametrize(
    ("change", "steps", "why"),
    [
        (lambda rows: rows.batch(10), None, "Batches of 10 rows cannot be divided between the 3 workers"),
        (lambda rows: rows.window(6), None, "does not know the size"),
        (_padded, None, "Pad them to one length"),
        (lambda rows: _by_file(rows.batch(6)), None, "asks for AutoShardPolicy.FILE"),
        (lambda rows: rows.batch(6), 3, "`repeat` is called"),
    ],
)
def test_data_are_refused(change: Callable[[Any], Any], steps: Optional[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        _made(change(_ROWS), steps)


def test_arrays_with_steps_per_epoch_are_refused() -> None:
    with pytest.raises(ValueError, match="`repeat` is called"):
        _made(_ROWS.batch(6), 3, ArrayRows(6, 50, None))


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda rows: rows.batch(6), 50),
        (lambda rows: rows.batch(6).prefetch(2).cache(), 50),
        (lambda rows: rows.shuffle(50).batch(6, drop_remainder=True), 48),
        (lambda rows: rows.padded_batch(6, ([4], [])), 50),
        (lambda rows: rows.batch(6).map(lambda x, y: (x * 2, y)), 50),
        (lambda rows: rows.batch(6).shuffle(3), None),
        (lambda rows: rows.batch(6).repeat(2), None),
        (lambda rows: rows.batch(6).take(2), None),
        (lambda rows: rows.filter(lambda x, y: y > 3).batch(6), None),
        (lambda rows: rows.repeat().batch(6), None),
        (lambda rows: rows.batch(6).map(lambda x, y: (tf.concat([x, x], 0), tf.concat([y, y], 0))), 50),
    ],
)
def test_rows_are_counted_where_they_are_known(change: Callable[[Any], Any], rows: Optional[int]) -> None:
    assert compat.number_of_rows(change(_ROWS), 6) == rows


@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (2.0, False), (0.5, False)])
def test_batches_may_be_mapped_if_their_rows_stay(factor: float, is_right: bool) -> None:
    def change(x: tf.Tensor, y: tf.Tensor) -> Any:
        rows = tf.range(tf.cast(tf.cast(tf.shape(y)[0], tf.float32) * factor, tf.int32))
        return tf.gather(x, rows % tf.shape(y)[0]), tf.gather(y, rows % tf.shape(y)[0])

    made = _made(_ROWS.batch(6).map(change).prefetch(1))
    if is_right:
        assert [len(y) for _, y in made.after([], [[6, 2]])] == [4] * 9 + [2]
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="call `batch` after this operation"):
        list(made.after([], []))


def test_the_replicas_of_a_worker_update_with_the_scaled_rate() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input([3]), tf.keras.layers.Dense(1, use_bias=False)])
        optimizer = tf.keras.optimizers.AdamW(0.1, weight_decay=0.5)
        optimizer.build(model.trainable_variables)
    told = []

    def update() -> None:
        told.append(optimizer.learning_rate)
        optimizer.apply_gradients([(tf.ones([3, 1]), model.trainable_variables[0])])

    before = model.get_weights()[0]
    with scaled_rates(0.25):
        strategy.run(update)
    rate = 0.025
    np.testing.assert_allclose(model.get_weights()[0], before * (1 - 0.5 * rate) - rate, rtol=1e-4)
    assert [float(tf.convert_to_tensor(each)) for each in told] == pytest.approx([0.1, 0.1])


def test_it_is_refused_where_it_would_have_no_effect() -> None:
    elastic = tfs.Elastic(batch="per_worker")
    with pytest.raises(tfs.OptionsError, match='step_losses="sum"'):
        tfs.CollectiveAllReduceStrategy(elastic=elastic, step_losses="sum")
    with pytest.raises(tfs.OptionsError, match="own rows and learning rate anyway"):
        tfs.CollectiveAllReduceStrategy(elastic=elastic, local_steps=tfs.LocalSGD(sync_every=2))
    with pytest.raises(tfs.OptionsError, match="batch must be one of 'global', 'per_worker'"):
        tfs.Elastic(batch="32")
