"""Checks of data that each worker has to itself: workers with less go on with nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.cluster.collective.data.numbered_rows import batches, linear, require_epochs, rows, union
from tests.cluster.collective.data.sharding import Policy, refused, sharding

Dataset = tf.data.Dataset


def check_uneven_workers_train_as_the_union_of_their_batches(strategy, folder) -> None:
    local, size = len(strategy.extended.worker_devices), 4
    x, y = rows(120)
    counts = [27 * local, 19 * local - 1, 0][: strategy.size]
    starts = np.cumsum([0, *counts])
    parts = [slice(start, start + count) for start, count in zip(starts, counts)]

    def feed(context) -> Any:
        part = parts[context.input_pipeline_id]
        return Dataset.from_tensor_slices((x[part], y[part])).batch(size)

    steps = union([batches(x[part], y[part], size * local) for part in parts])
    assert len(steps) == 7
    for executions in (1, 3):
        model = linear(strategy, steps_per_execution=executions)
        dataset = strategy.distribute_datasets_from_function(feed)
        assert int(dataset.cardinality) == 7
        require_epochs(model, model.fit(dataset, steps_per_epoch=7, verbose=0), steps)


def check_batches_with_a_scalar(strategy, folder) -> None:
    local = len(strategy.extended.worker_devices)

    def feed(context) -> Any:
        own = context.input_pipeline_id + 1.0
        return Dataset.from_tensors((tf.fill([4, 2], own), own)).repeat(3 * local)

    total, steps = 0.0, 0
    for batch in strategy.distribute_datasets_from_function(feed):
        products = strategy.run(lambda batch: tf.reduce_sum(batch[0]) * batch[1], args=(batch,))
        total += float(strategy.reduce("SUM", products, axis=None))
        steps += 1
    assert steps == 3
    assert total == 3 * local * 8 * sum((rank + 1.0) ** 2 for rank in range(strategy.size))
    message = refused(
        lambda: strategy.experimental_distribute_dataset(Dataset.from_tensors((tf.ones([4]), 1.0)))
    )
    assert "a component that is a scalar" in message and "distribute_datasets_from_function" in message
    of_two_sizes = Dataset.from_tensors((tf.ones([4, 2]), tf.ones([6])))
    message = refused(lambda: strategy.experimental_distribute_dataset(of_two_sizes))
    assert "different numbers of rows" in message and "distribute_datasets_from_function" in message


def check_own_data_with_sharding_off(strategy, folder) -> None:
    x, y = rows(90)
    size = 4 * strategy.size
    counts = [27, 19, 0][: strategy.size]
    starts = np.cumsum([0, *counts])
    parts = [slice(start, start + count) for start, count in zip(starts, counts)]
    mine = parts[strategy.rank]
    steps = union([batches(x[part], y[part], 4) for part in parts])
    for unknown in (False, True):
        dataset = Dataset.from_tensor_slices((x[mine], y[mine]))
        if unknown and strategy.rank == 1:
            dataset = dataset.filter(lambda *_: True)
        model = linear(strategy)
        history = model.fit(sharding(dataset.batch(size), Policy.OFF), epochs=2, verbose=0)
        require_epochs(model, history, steps, 2)
