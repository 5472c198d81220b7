"""Checks of how datasets without files are split: it is logged once, and what cannot work is refused."""

from __future__ import annotations

import contextlib
import io

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.data.numbered_rows import batches, linear, rows
from tests.cluster.collective.data.record_files import read_records, record_files
from tests.cluster.collective.data.sharding import Lines, Policy, refused, sharding
from tests.cluster.collective.data_kinds import as_sequence

Dataset = tf.data.Dataset


def check_each_dataset_has_one_line_in_the_log(strategy, folder) -> None:
    plain = Dataset.range(40).batch(4)
    for dataset, level, text in (
        (plain, "INFO", "sharded by DATA (AUTO found no files to split)"),
        (sharding(plain, Policy.OFF), "WARNING", "not sharded (as AutoShardPolicy.OFF asks)"),
        (sharding(plain, Policy.DATA), "INFO", "sharded by DATA (as AutoShardPolicy.DATA asks)"),
    ):
        with Lines() as lines:
            strategy.experimental_distribute_dataset(dataset)
        lines.require(strategy, level, text)
    with Lines() as lines:
        strategy.experimental_distribute_dataset(plain)
    assert not lines.lines, "the same line again"
    other = tfs.CollectiveAllReduceStrategy(devices=strategy.extended.worker_devices)
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        other.experimental_distribute_dataset(plain)
    other.close()
    shown = printed.getvalue()
    assert ("tf_strategies: The dataset is sharded by DATA" in shown) == (strategy.rank == 0), shown


def check_what_cannot_work_is_refused_on_all_workers(strategy, folder) -> None:
    rank = strategy.rank
    names, _ = record_files(strategy, folder, "few", [2])
    for dataset, texts in (
        (Dataset.range(40 - 8 * rank).batch(4), ("10 batches on worker 0", "8 on worker 1", "OFF")),
        (
            Dataset.range(40).shuffle(40, seed=rank + 1).batch(4),
            ("shuffles with the seeds", "worker 1", "seed="),
        ),
        (Dataset.range(40).shuffle(40).batch(4), ("shuffles without a seed", "set_random_seed")),
        (
            sharding(Dataset.range(4).batch(4), (Policy.DATA, Policy.OFF)[rank % 2]),
            ("AutoShardPolicy.DATA", "OFF"),
        ),
        (sharding(read_records(names).batch(4), Policy.FILE), ("a file for each of", "it has 1 file")),
        (sharding(Dataset.range(40).batch(4), Policy.FILE), ("finds no files to split",)),
    ):
        message = refused(lambda dataset=dataset: strategy.experimental_distribute_dataset(dataset))
        assert all(text in message for text in texts), (message, texts)
    x, y = rows(12)
    model = linear(strategy)
    uneven = as_sequence(batches(x, y, 4)[: 3 - rank % 2])
    message = refused(lambda: model.fit(uneven, verbose=0))
    assert "number of batches" in message and "has 3" in message and "has 2" in message, message
