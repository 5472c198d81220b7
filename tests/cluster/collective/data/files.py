"""Checks of data in files: of different lengths, listed differently, and text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, List

import numpy as np
import tensorflow as tf

from tests.cluster.collective.data.numbered_rows import FEATURES, batches, linear, require_epochs, rows, union
from tests.cluster.collective.data.record_files import meet, parse, read_records, record_files
from tests.cluster.collective.data.sharding import Lines, Policy, refused, sharding

Dataset = tf.data.Dataset


def check_files_of_different_lengths(strategy, folder) -> None:
    lengths = [9, 4, 0, 13, 8, 1]
    names, contents = record_files(strategy, folder, "uneven", lengths)
    size = 12
    parts = [
        tuple(np.concatenate(columns) for columns in zip(*contents[rank :: strategy.size]))
        for rank in range(strategy.size)
    ]
    steps = union([batches(*part, size // strategy.size) for part in parts])
    model = linear(strategy)
    chosen = "sharded by FILE (AUTO found 6 files for 2 workers)"
    if strategy.size == 3:
        chosen = "sharded by DATA (AUTO found 6 files for 3 workers; split by file, the largest share would be 1.89 times"
    with Lines() as lines:
        strategy.experimental_distribute_dataset(read_records(names).batch(size))
    lines.require(strategy, "WARNING", chosen)
    with Lines() as lines:
        history = model.fit(sharding(read_records(names).batch(size), Policy.FILE), epochs=2, verbose=0)
    lines.require(
        strategy, "INFO" if strategy.size == 2 else "WARNING", "sharded by FILE (as AutoShardPolicy.FILE"
    )
    require_epochs(model, history, steps, 2)
    fewer = Dataset.from_tensor_slices(names[:1]).interleave(tf.data.TFRecordDataset).map(parse)
    with Lines() as lines:
        evaluated = model.evaluate(fewer.batch(4), verbose=0, return_dict=True)
    assert evaluated["rows"] == 9
    lines.require(
        strategy, "INFO", f"sharded by DATA (AUTO found 1 file, fewer than the {strategy.size} workers)"
    )
    predicted = model.predict(read_records(names).batch(size), verbose=0)
    kernel, bias = model.get_weights()
    x = np.concatenate([part[0] for part in contents])
    np.testing.assert_allclose(predicted, x @ kernel + bias, rtol=1e-4, atol=1e-5)


def check_lists_of_files_that_differ_are_refused(strategy, folder) -> None:
    names, _ = record_files(strategy, folder, "listed", [2] * 6)
    rank = strategy.rank
    mounted = Path(folder) / f"mounted-{rank}"
    shutil.copytree(folder, mounted, ignore=lambda _, found: [name for name in found if "listed" not in name])
    there = [str(mounted / Path(name).name) for name in names]

    def distribute(listed: List[str], policy: Policy = Policy.AUTO) -> Any:
        return strategy.experimental_distribute_dataset(sharding(read_records(listed).batch(6), policy))

    distribute(there)
    reversed_on_one = names[::-1] if rank == 1 else names
    others = [*names[:5], there[5].replace("-5.", "-7.")] if rank == 1 else names
    Path(there[5]).rename(there[5].replace("-5.", "-7."))
    grown = there[:5]
    if rank == 1:
        with Path(there[2]).open("ab") as file:
            file.write(b"more")
    for call, texts in (
        (lambda: distribute(reversed_on_one), ("the same files", "in another order", "file 0 is", "sorted(")),
        (lambda: distribute(reversed_on_one[:1] + names[1:]), ("worker 1", "'listed-0.records'", "OFF")),
        (lambda: distribute(others), ("worker 1", "'listed-7.records'", "'listed-5.records'", "OFF")),
        (lambda: distribute(names[: 6 - rank % 2]), ("'listed-5.records'", "read twice")),
        (lambda: distribute(grown, Policy.FILE), ("other sizes", "'listed-2.records'", "but 68 on worker 1")),
    ):
        message = refused(call)
        assert all(text in message for text in texts), (message, texts)


def check_text_files(strategy, folder) -> None:
    x, y = rows(20)
    names = [str(Path(folder) / f"{number}.csv") for number in range(4)]
    if strategy.rank == 0:
        for number, name in enumerate(names):
            table = np.concatenate([x, y], 1)[5 * number : 5 * number + 5]
            lines = "".join(",".join(f"{value:.6f}" for value in row) + "\n" for row in table)
            Path(name).write_text("a,b,c,y\n" + lines)
    meet(strategy)

    def split(line: tf.Tensor) -> tuple:
        columns = tf.io.decode_csv(line, [0.0] * (FEATURES + 1))
        return tf.stack(columns[:FEATURES]), tf.stack(columns[FEATURES:])

    def read(name: tf.Tensor) -> Dataset:
        return tf.data.TextLineDataset(name).skip(1)

    model = linear(strategy)
    by_file = Dataset.list_files(names, shuffle=False).interleave(read).map(split).batch(8)
    by_table = tf.data.experimental.make_csv_dataset(
        names, 8, label_name="y", num_epochs=1, shuffle=False, header=True
    ).map(lambda columns, label: (tf.stack(list(columns.values()), 1), label[:, None]))
    # Of 4 files on 3 workers one has twice as many as the others: too uneven for FILE.
    chosen = "FILE" if strategy.size == 2 else "DATA"
    for dataset, level, policy in ((by_file, "WARNING", chosen), (by_table, "INFO", "DATA")):
        with Lines() as lines:
            logs = model.evaluate(dataset, verbose=0, return_dict=True)
        if dataset is by_file or strategy.size == 3:  # two workers were told of data without files before
            lines.require(strategy, level, f"sharded by {policy}")
        assert logs["rows"] == 20, logs
        np.testing.assert_allclose(logs["targets"], y.sum(), rtol=1e-5)
