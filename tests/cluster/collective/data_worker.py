"""One of several workers that check how data are split, counted and put together again.

python -m tests.cluster.collective.data_worker LOCAL_REPLICAS FOLDER CHECK...

Rows are numbered: row i has the target i / 10, and metrics add up targets and rows, so that a row lost or seen twice shows.
The oracle trains the same linear model in NumPy on the union of what the workers should have in each step.
"""

from __future__ import annotations

import contextlib
import io
import logging as python_logging
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import tensorflow as tf
from absl import logging

import tf_strategies as tfs
from tests.cluster.collective.data_kinds import as_generator, as_sequence, keras
from tests.support.checks import run_checks
from tests.support.replicas import on_cpus, require_equal_everywhere

FEATURES, RATE = 3, 0.1
Dataset = tf.data.Dataset
Policy = tf.data.experimental.AutoShardPolicy


class Rows(keras.metrics.Metric):
    """The number of rows seen."""

    def __init__(self, name: str = "rows") -> None:
        super().__init__(name=name)
        self.total = self.add_weight(name="total", shape=(), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

    def result(self) -> Any:
        return self.total + 0.0


class Targets(Rows):
    """The sum of the targets seen."""

    def __init__(self) -> None:
        super().__init__(name="targets")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.reduce_sum(tf.cast(y_true, tf.float32)))


def rows(count: int, first: int = 0) -> tuple:
    """x [count, FEATURES] and y [count, 1] of the rows from `first` on."""
    x = np.random.default_rng(5).standard_normal((200, FEATURES)).astype("float32")[first : first + count]
    return x, (np.arange(first, first + count, dtype="float32") / 10)[:, None]


def linear(strategy, **compiling: Any) -> Any:
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((FEATURES,)), keras.layers.Dense(1, kernel_initializer="zeros")]
        )
        model.compile(keras.optimizers.SGD(RATE), "mse", metrics=[Rows(), Targets()], **compiling)
    return model


def joint_training(steps: List[tuple]) -> tuple:
    """The weights after SGD on the mean squared error of each (x, y)."""
    kernel, bias = np.zeros((FEATURES, 1)), np.zeros(1)
    for x, y in steps:
        error = 2 * (x @ kernel + bias - y) / len(x)
        kernel, bias = kernel - RATE * x.T @ error, bias - RATE * error.sum(axis=0)
    return kernel, bias


def batches(x: np.ndarray, y: np.ndarray, size: int) -> List[tuple]:
    return [(x[at : at + size], y[at : at + size]) for at in range(0, len(x), size)]


def union(parts: List[List[tuple]]) -> List[tuple]:
    """Step by step, the rows of all that still have a batch."""
    steps = range(max(len(part) for part in parts))
    present = [[part[step] for part in parts if step < len(part)] for step in steps]
    return [tuple(np.concatenate(columns) for columns in zip(*step)) for step in present]


def require_epochs(model: Any, history: Any, steps: List[tuple], epochs: int = 1) -> None:
    """Each epoch saw each row once, and the weights are those of the joint steps."""
    logs = history.history
    expected = sum(len(x) for x, _ in steps), sum(float(y.sum()) for _, y in steps)
    assert logs["rows"] == [expected[0]] * epochs, (logs["rows"], expected)
    np.testing.assert_allclose(logs["targets"], [expected[1]] * epochs, rtol=1e-5)
    for mine, theirs in zip(model.get_weights(), joint_training(steps * epochs)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
    if epochs == 1:
        kernel, bias, total = np.zeros((FEATURES, 1)), np.zeros(1), 0.0
        for number, (x, y) in enumerate(steps):
            kernel, bias = joint_training(steps[:number])
            total += float(((x @ kernel + bias - y) ** 2).sum())
        np.testing.assert_allclose(logs["loss"][0], total / expected[0], rtol=1e-4)


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


def check_every_kind_of_data_trains_as_one_process(strategy, folder) -> None:
    x, y = rows(33)
    size = 10
    kinds: Dict[str, Callable[[], dict]] = {
        "arrays": lambda: {"x": x, "y": y, "batch_size": size, "shuffle": False},
        "tensors": lambda: {"x": tf.constant(x), "y": tf.constant(y), "batch_size": size, "shuffle": False},
        "dataset": lambda: {"x": Dataset.from_tensor_slices((x, y)).batch(size)},
        "generator": lambda: {"x": as_generator(batches(x, y, size))},
        "sequence": lambda: {"x": as_sequence(batches(x, y, size)), "shuffle": False},
    }
    for kind, make in kinds.items():
        model = linear(strategy)
        history = model.fit(**make(), verbose=0)
        try:
            require_epochs(model, history, batches(x, y, size))
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from error


def check_dicts_and_eager_steps(strategy, folder) -> None:
    x, y = rows(11)
    with strategy.scope():
        inputs = {name: keras.layers.Input((size,), name=name) for name, size in (("a", 2), ("b", 1))}
        joined = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
        model = keras.Model(
            inputs, {"out": keras.layers.Dense(1, kernel_initializer="zeros", name="out")(joined)}
        )
        model.compile(
            keras.optimizers.SGD(RATE), {"out": "mse"}, metrics={"out": [Rows(), Targets()]}, run_eagerly=True
        )
    data = {"a": x[:, :2], "b": x[:, 2:]}, {"out": y}
    history = model.fit(*data, batch_size=4, shuffle=False, verbose=0)
    named = {name.replace("out_", ""): value for name, value in history.history.items()}
    history.history = named
    require_epochs(model, history, batches(x, y, 4))
    predicted = model.predict(data[0], batch_size=4, verbose=0)
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(predicted["out"], x @ kernel + bias, rtol=1e-4, atol=1e-5)


def check_batches_smaller_than_the_replicas(strategy, folder) -> None:
    x, y = rows(7)
    model = linear(strategy)
    require_epochs(
        model, model.fit(x, y, batch_size=2, shuffle=False, epochs=2, verbose=0), batches(x, y, 2), 2
    )


def check_shuffled_data_have_each_row_once_an_epoch(strategy, folder) -> None:
    x, y = rows(40)
    keras.utils.set_random_seed(strategy.rank)
    sequence = as_sequence(batches(x, y, 10))
    for arguments in ({"x": x, "y": y, "batch_size": 10}, {"x": sequence, "shuffle": True}):
        model = linear(strategy)
        logs = model.fit(**arguments, epochs=3, verbose=0).history
        assert logs["rows"] == [40.0] * 3
        np.testing.assert_allclose(logs["targets"], [y.sum()] * 3, rtol=1e-5)
        in_order = joint_training(batches(x, y, 10) * 3)
        assert not np.allclose(model.get_weights()[0], in_order[0], rtol=1e-6, atol=1e-6)
    tf.random.set_seed(None)


def check_steps_per_epoch_and_repeat(strategy, folder) -> None:
    x, y = rows(24)
    model = linear(strategy)
    dataset = Dataset.from_tensor_slices((x, y)).repeat().batch(8)
    history = model.fit(dataset, steps_per_epoch=2, epochs=3, verbose=0)
    assert history.history["rows"] == [16.0] * 3
    for mine, theirs in zip(model.get_weights(), joint_training(batches(x, y, 8) * 2)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def check_steps_per_execution(strategy, folder) -> None:
    x, y = rows(33)
    for size, drop in ((5, False), (4, True)):
        steps = [step for step in batches(x, y, size) if not drop or len(step[0]) == size]
        model = linear(strategy, steps_per_execution=3)
        dataset = Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=drop)
        require_epochs(model, model.fit(dataset, verbose=0), steps)


def check_validation_data_of_every_kind(strategy, folder) -> None:
    x, y = rows(12)
    val_x, val_y = rows(17, first=12)
    val = batches(val_x, val_y, 6)
    model = linear(strategy)

    def of(**arguments: Any) -> dict:
        return model.fit(x, y, batch_size=6, epochs=2, verbose=0, **arguments).history

    for data in ((val_x, val_y), Dataset.from_tensor_slices((val_x, val_y)).batch(6), as_sequence(val)):
        logs = of(validation_data=data)
        assert logs["val_rows"] == [17.0] * 2, (type(data), logs)
        np.testing.assert_allclose(logs["val_targets"], [val_y.sum()] * 2, rtol=1e-5)
        kernel, bias = model.get_weights()
        np.testing.assert_allclose(
            logs["val_loss"][1], ((val_x @ kernel + bias - val_y) ** 2).mean(), rtol=1e-4
        )
    logs = of(validation_split=0.25)
    assert (logs["rows"], logs["val_rows"]) == ([9.0] * 2, [3.0] * 2)
    endless = Dataset.from_tensor_slices((val_x, val_y)).repeat().batch(5)
    assert of(validation_data=endless, validation_steps=2)["val_rows"] == [10.0] * 2


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


def check_predict_gives_all_rows_in_order_everywhere(strategy, folder) -> None:
    x, _ = rows(33)
    model = linear(strategy)
    kernel, bias = np.array([[1.0], [10.0], [-3.0]]), np.array([0.5])
    model.set_weights([kernel, bias])
    for count, size in ((33, 10), (2, 32), (1, 32)):
        expected = x[:count] @ kernel + bias
        for data in (
            {"x": x[:count], "batch_size": size},
            {"x": Dataset.from_tensor_slices(x[:count]).filter(lambda _: True).batch(size)},
        ):
            got = model.predict(**data, verbose=0)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=f"{count} {size}")
    endless = Dataset.from_tensor_slices(x[:12]).repeat().batch(5)
    got = model.predict(endless, steps=3, verbose=0)
    np.testing.assert_allclose(got, np.tile(x[:12], (2, 1))[:15] @ kernel + bias, rtol=1e-5, atol=1e-5)
    got = model.predict(as_sequence([(part,) for part, _ in batches(*rows(14), 4)]), verbose=0)
    np.testing.assert_allclose(got, x[:14] @ kernel + bias, rtol=1e-5, atol=1e-5)
    with strategy.scope():
        model.compile(run_eagerly=True)
    got = model.predict(x[:9], batch_size=4, verbose=0)
    np.testing.assert_allclose(got, x[:9] @ kernel + bias, rtol=1e-5, atol=1e-5)


def check_predict_with_several_inputs_and_outputs(strategy, folder) -> None:
    x, y = rows(15)
    with strategy.scope():
        inputs = {"a": keras.layers.Input((FEATURES,), name="a"), "b": keras.layers.Input((1,), name="b")}
        sums = keras.layers.Dense(2, name="s")(inputs["a"])
        model = keras.Model(inputs, {"sums": sums, "both": keras.layers.Add()([sums, inputs["b"]])})
    weights, bias = model.get_weights()
    for data in ({"a": x, "b": y}, Dataset.from_tensor_slices({"a": x, "b": y}).batch(4)):
        batch = {"batch_size": 4} if isinstance(data, dict) else {}
        got = model.predict(data, **batch, verbose=0)
        assert set(got) == {"sums", "both"}
        np.testing.assert_allclose(got["sums"], x @ weights + bias, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["both"], x @ weights + bias + y, rtol=1e-4, atol=1e-5)


def check_evaluate_equals_one_process(strategy, folder) -> None:
    generator = np.random.default_rng(8)
    x = generator.standard_normal((35, FEATURES)).astype("float32")
    y = (generator.random((35, 1)) < 0.5).astype("float32")
    weight = generator.random(35).astype("float32")
    start = [generator.standard_normal((FEATURES, 1)).astype("float32"), np.array([0.2], "float32")]

    def compiled() -> Any:
        layers = [keras.layers.Input((FEATURES,)), keras.layers.Dense(1, activation="sigmoid")]
        model = keras.Sequential(layers)
        metrics = ["accuracy", keras.metrics.AUC(num_thresholds=20, name="auc")]
        model.compile("sgd", "binary_crossentropy", weighted_metrics=metrics)
        model.set_weights(start)
        return model

    with strategy.scope():
        model = compiled()
    single = compiled()
    for data in (
        {"x": x, "y": y, "batch_size": 8},
        {"x": x, "y": y, "sample_weight": weight, "batch_size": 8},
        {"x": Dataset.from_tensor_slices((x, y, weight)).batch(16)},
        {"x": x[:2], "y": y[:2], "batch_size": 8},
    ):
        mine, alone = (each.evaluate(**data, verbose=0, return_dict=True) for each in (model, single))
        assert set(mine) == set(alone) == {"loss", "accuracy", "auc"}, (mine, alone)
        for name, value in alone.items():
            np.testing.assert_allclose(mine[name], value, rtol=1e-5, err_msg=f"{name}: {mine} {alone}")
        require_equal_everywhere(strategy, [mine[name] for name in sorted(mine)])


class Lines(python_logging.Handler):
    """What absl logs of datasets while this is open."""

    def __enter__(self) -> Lines:
        self.lines: List[tuple] = []
        self.verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.INFO)
        logging.get_absl_logger().addHandler(self)
        return self

    def __exit__(self, *_: Any) -> None:
        logging.get_absl_logger().removeHandler(self)
        logging.set_verbosity(self.verbosity)

    def emit(self, record: python_logging.LogRecord) -> None:
        if "dataset is" in record.getMessage():
            self.lines.append((record.levelname, record.getMessage()))

    def require(self, strategy, level: str, text: str) -> None:
        """One line of that level with the text on the chief, none elsewhere."""
        assert len(self.lines) == (strategy.rank == 0), (text, self.lines)
        assert all(level == found and text in line for found, line in self.lines), (level, text, self.lines)


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("no error")


def sharding(dataset: Dataset, policy: Policy) -> Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def meet(strategy) -> None:
    strategy.gather(tf.constant([0]), axis=0)


def record_files(strategy, folder, name: str, lengths: List[int]) -> tuple:
    """TFRecord files of so many rows each, written by the chief: their names and their (x, y)."""
    starts = np.cumsum([0, *lengths])
    contents = [rows(length, int(start)) for length, start in zip(lengths, starts)]
    names = [str(Path(folder) / f"{name}-{number}.records") for number in range(len(lengths))]
    if strategy.rank == 0:
        for path, (x, y) in zip(names, contents):
            with tf.io.TFRecordWriter(path) as writer:
                for row in np.concatenate([x, y], 1):
                    writer.write(row.tobytes())
    meet(strategy)
    return names, contents


def parse(record: tf.Tensor) -> tuple:
    row = tf.ensure_shape(tf.io.decode_raw(record, tf.float32), [FEATURES + 1])
    return row[:FEATURES], row[FEATURES:]


def read_records(names: List[str]) -> Dataset:
    return tf.data.TFRecordDataset(names).map(parse)


if __name__ == "__main__":
    run_checks(globals(), on_cpus(int(sys.argv[1])), sys.argv[2], only=sys.argv[3:])
