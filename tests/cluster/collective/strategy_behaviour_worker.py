"""One of several workers that check what `CollectiveAllReduceStrategy` promises.

python -m tests.cluster.collective.strategy_behaviour_worker FOLDER
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.checks import run_checks
from tests.support.processes import wait_until
from tests.support.replicas import on_cpus, require_equal_everywhere

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

FEATURES, CLASSES = 5, 3


def rows(count: int) -> tuple:
    generator = np.random.default_rng(3)
    return generator.standard_normal((count, FEATURES)).astype("float32"), generator.integers(
        0, CLASSES, count
    )


def make_model(strategy, normalize: bool = False, hidden: int = 8) -> keras.Model:
    with strategy.scope():
        layers = [keras.layers.Input((FEATURES,)), keras.layers.Dense(hidden, activation="relu")]
        layers += [keras.layers.BatchNormalization()] if normalize else []
        model = keras.Sequential([*layers, keras.layers.Dense(CLASSES)])
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return model


def check_workers_are_bit_identical_after_200_steps(strategy, folder) -> None:
    keras.utils.set_random_seed(50 + strategy.rank)
    model = make_model(strategy)
    require_equal_everywhere(strategy, model.get_weights())
    x, y = rows(24 * 20)
    model.fit(x, y, batch_size=24, epochs=10, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 200
    require_equal_everywhere(strategy, model.get_weights())


def check_variables_start_as_worker_zero_made_them(strategy, folder) -> None:
    mine = float(strategy.rank + 1)
    with strategy.scope():
        given = [tf.Variable(mine), tf.Variable(lambda: tf.fill([2], mine)), tf.Variable(strategy.rank == 0)]
    for variable in given:
        for part in strategy.experimental_local_results(variable):
            assert (part.numpy() == 1).all()


def check_string_variables_start_as_worker_zero_made_them(strategy, folder) -> None:
    first, mine = [["a", ""], ["caf\u00e9", "long " * 9]], f"{strategy.rank}" * (strategy.rank + 1)
    with strategy.scope():
        table = tf.Variable(first if strategy.rank == 0 else [[mine, "b"], ["c", mine]])
        scalar = tf.Variable(lambda: tf.constant(mine))
        empty = tf.Variable(tf.zeros([0], tf.string))
    np.testing.assert_array_equal(table.numpy(), [[each.encode() for each in row] for row in first])
    assert scalar.numpy() == b"0" and empty.shape == [0]


def check_a_session_of_its_own_starts_and_trains_as_worker_zero(strategy, folder) -> None:
    mine, count = float(strategy.rank + 1), strategy.num_replicas_in_sync

    def rows_of_worker(context) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(tf.fill([1], mine)).repeat(2)

    with tf.Graph().as_default(), strategy.scope():
        variable = tf.compat.v1.get_variable(
            "w", [3], initializer=tf.compat.v1.random_normal_initializer(seed=mine)
        )
        text = tf.Variable(f"worker {strategy.rank}")
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.01, 0.9)
        iterator = strategy.make_input_fn_iterator(rows_of_worker)
        batches = iterator.get_next()

        def step(batch):
            return optimizer.minimize(tf.reduce_sum(tf.square(variable - batch)))

        parts = strategy.experimental_local_results
        train = parts(strategy.extended.call_for_each_replica(step, args=(batches,)))
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(), iterator.initializer])
            before, strings = session.run([variable, text])
            batch, _ = session.run([parts(batches), train])
            after = session.run(variable)
    assert strings == b"worker 0" and [float(part[0]) for part in batch] == [mine] * len(batch)
    require_equal_everywhere(strategy, [before, after])
    targets = len(batch) * sum(range(1, strategy.size + 1))
    np.testing.assert_allclose(after, before - 0.01 * 2 * (count * before - targets), rtol=1e-5)


def check_variables_made_inside_a_function_agree(strategy, folder) -> None:
    made = []

    @tf.function
    def step():
        if not made:
            made.append(tf.Variable(tf.random.normal([3])))
        return made[0].read_value()

    with strategy.scope():
        first = step()
    require_equal_everywhere(strategy, [first])


def check_custom_loop_reduces_over_all_replicas(strategy, folder) -> None:
    count = strategy.num_replicas_in_sync
    expected = count * (count + 1) / 2

    def replica(value):
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(
            "SUM", {"f": value, "h": tf.cast(value, tf.float16), "i": tf.cast(value, tf.int32)}
        )
        slices = tf.IndexedSlices(
            tf.ones([1, 2]) * value, tf.cast(value[None], tf.int32), tf.constant([count + 1, 2])
        )
        table = tf.convert_to_tensor(context.all_reduce("MEAN", slices))
        return total, context.all_reduce("MEAN", value), context.all_gather(value[None], axis=0), table

    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
    )
    for step in (
        tf.function(lambda value: strategy.run(replica, args=(value,))),
        lambda v: strategy.run(replica, args=(v,)),
    ):
        total, mean, gathered, table = step(values)
        for part in map(strategy.experimental_local_results, (total["f"], total["h"], total["i"])):
            assert all(float(number) == expected for number in part)
        assert all(float(number) == expected / count for number in strategy.experimental_local_results(mean))
        for part in strategy.experimental_local_results(gathered):
            np.testing.assert_array_equal(part, np.arange(1.0, count + 1))
        for part in strategy.experimental_local_results(table):
            np.testing.assert_allclose(
                part, np.arange(count + 1.0)[:, None] * np.ones([1, 2]) / count, rtol=1e-6
            )
    assert float(strategy.reduce("SUM", values, axis=None)) == expected
    assert float(strategy.reduce("MEAN", values, axis=None)) == expected / count


def check_all_gather_of_arguments_and_wrong_axes(strategy, folder) -> None:
    count = strategy.num_replicas_in_sync

    def gather(value, axis):
        return tf.distribute.get_replica_context().all_gather(value, axis=axis)

    @tf.function
    def step(value, axis):
        return strategy.run(gather, args=(value, axis))

    def total(value):
        return tf.distribute.get_replica_context().all_reduce("SUM", value)

    for run in (
        tf.function(lambda value: strategy.run(total, args=(value,))),
        lambda v: strategy.run(total, (v,)),
    ):
        for part in strategy.experimental_local_results(run(tf.ones([]))):
            assert float(part) == count, (float(part), count)
    for axis, shape in ((0, (2 * count, 3)), (1, (2, 3 * count)), (-1, (2, 3 * count))):
        for part in strategy.experimental_local_results(step(tf.ones([2, 3]), axis)):
            assert part.shape == shape, (axis, part.shape)
    for value, axis, text in (
        (tf.ones([2, 3]), 2, "axis must be in [-2, 2)"),
        (tf.ones([]), 0, "expand_dims"),
    ):
        for call in (step, lambda value, axis: strategy.gather(value, axis)):
            try:
                call(value, axis)
            except ValueError as error:
                assert text in str(error), error
            else:
                raise AssertionError("no error")


def check_the_gradient_through_all_reduce(strategy, folder) -> None:
    @tf.function
    def step(value):
        def replica(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.distribute.get_replica_context().all_reduce("SUM", x * x)
            return tape.gradient(y, x)

        return strategy.run(replica, args=(value,))

    value = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(3.0))
    for part in strategy.experimental_local_results(step(value)):
        assert float(part) == 6.0 * strategy.num_replicas_in_sync


def check_a_distributed_dataset_has_each_row_once(strategy, folder) -> None:
    dataset = tf.data.Dataset.range(50).batch(12)
    seen = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        seen.append(strategy.gather(batch, axis=0).numpy())
    assert len(seen) == 5
    assert sorted(np.concatenate(seen)) == list(range(50))


def check_uneven_data_ends_for_all_together(strategy, folder) -> None:
    x, y = rows(40)

    def feed(context):
        count = 4 * (context.input_pipeline_id + 1)
        return tf.data.Dataset.from_tensor_slices((x[:count], y[:count])).batch(4)

    for normalize in (False, True):
        model = make_model(strategy, normalize)
        dataset = strategy.distribute_datasets_from_function(feed)
        history = model.fit(dataset, epochs=1, steps_per_epoch=strategy.size, verbose=0).history
        require_equal_everywhere(strategy, [history["loss"], history["accuracy"]])
        require_equal_everywhere(strategy, [weight.numpy() for weight in model.trainable_variables])
        assert all(np.isfinite(weight).all() for weight in model.get_weights())


def check_fewer_rows_than_replicas(strategy, folder) -> None:
    x, y = rows(strategy.num_replicas_in_sync + 1)
    for normalize in (False, True):
        model = make_model(strategy, normalize)
        model.fit(x, y, batch_size=strategy.num_replicas_in_sync, epochs=2, verbose=0)
        assert all(np.isfinite(weight).all() for weight in model.get_weights())
    loss, accuracy = model.evaluate(x[:1], y[:1], verbose=0)
    require_equal_everywhere(strategy, [[loss, accuracy]])
    assert model.predict(x[:2], verbose=0).shape == (2, CLASSES)


def check_logs_and_callbacks_agree_whatever_is_printed(strategy, folder) -> None:
    x, y = rows(60)
    shown = keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.05)
    model = make_model(strategy)
    history = model.fit(
        x,
        y,
        batch_size=12,
        epochs=8,
        validation_split=0.2,
        callbacks=[shown],
        verbose=2 if strategy.rank == 1 else 0,
    ).history
    require_equal_everywhere(strategy, [history[name] for name in sorted(history)])
    logits = model.predict(x, batch_size=12, verbose=0)
    accuracy = model.evaluate(x, y, batch_size=12, verbose=0)[1]
    assert abs(accuracy - (logits.argmax(axis=1) == y).mean()) < 1e-6


def check_the_step_that_finds_no_data_left_is_not_counted(strategy, folder) -> None:
    model = make_model(strategy)
    for _ in range(5):
        dataset = tf.data.Dataset.from_tensor_slices(rows(48)).filter(lambda x, y: True).batch(12)
        model.fit(dataset, epochs=2, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 5 * 2 * 4


class Stops(keras.callbacks.Callback):
    """Wants to stop after a batch (from 0) of the first epoch, or after that epoch; None for never."""

    def __init__(self, batch: int | None, at_epoch_end: bool = False) -> None:
        super().__init__()
        self.batch, self.at_epoch_end, self.batches = batch, at_epoch_end, 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.batches += 1
        if self.batches - 1 == self.batch:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None) -> None:
        if self.at_epoch_end:
            self.model.stop_training = True


def batches_until_all_stop(strategy, model, callback: Stops) -> int:
    x, y = rows(24 * 8)
    model.fit(x, y, batch_size=24, epochs=3, verbose=0, callbacks=[callback])
    require_equal_everywhere(strategy, [np.array(callback.batches), *model.get_weights()])
    return callback.batches


def check_one_worker_that_wants_to_stop_stops_all_after_the_same_batch(strategy, folder) -> None:
    model = make_model(strategy)
    for batches in ({1: 3}, {0: 3}, {0: 3, 2: 4}, {0: 3, 1: 3, 2: 3}):
        seen = batches_until_all_stop(strategy, model, Stops(batches.get(strategy.rank)))
        assert 4 <= seen <= (4 if len(batches) == strategy.size else 5), (batches, seen)
    assert batches_until_all_stop(strategy, model, Stops(7 if strategy.rank == 2 else None)) in (8, 9)
    assert batches_until_all_stop(strategy, model, Stops(23 if strategy.rank == 2 else None)) == 24


def check_workers_that_want_to_stop_after_an_epoch_stop_there(strategy, folder) -> None:
    model = make_model(strategy)
    assert batches_until_all_stop(strategy, model, Stops(None, at_epoch_end=True)) == 8
    assert batches_until_all_stop(strategy, model, Stops(None, at_epoch_end=strategy.rank == 1)) in (8, 9)
    assert batches_until_all_stop(strategy, model, Stops(None)) == 24


def check_the_chief_alone_can_save(strategy, folder) -> None:
    x, y = rows(24)
    model = make_model(strategy, normalize=True)
    model.fit(x, y, batch_size=12, verbose=0)
    require_chief = (
        strategy.extended.should_checkpoint == (strategy.rank == 0) == strategy.extended.should_save_summary
    )
    assert require_chief
    if strategy.rank == 0:
        with strategy.scope():
            model.save(folder / "inside.keras")
        model.save(folder / "model.keras")
        model.save_weights(folder / "model.weights.h5")
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(folder / "checkpoint"))
        if getattr(keras, "__version__", "2").startswith("2"):
            model.save(folder / "saved_model")
        for name in ("inside.keras", "model.keras"):
            again = keras.models.load_model(folder / name)
            assert type(again.distribute_strategy) is not type(strategy)
            for kept, weight in zip(again.get_weights(), model.get_weights()):
                np.testing.assert_array_equal(kept, weight)


def check_two_strategies_train_side_by_side(strategy, folder) -> None:
    other = tfs.CollectiveAllReduceStrategy(devices=["CPU:1", "CPU:0"])
    models = [make_model(strategy), make_model(other, normalize=True)]
    x, y = rows(24)
    for _ in range(2):
        for model in models:
            model.fit(x, y, batch_size=12, verbose=0)
    for model in models:
        require_equal_everywhere(strategy, model.get_weights())
    other.close()
    assert float(strategy.reduce("SUM", tf.ones([]), axis=None)) == strategy.size
    try:
        tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(algorithm="ring"))
    except tfs.OptionsError as error:
        assert "algorithm='ring'" in str(error) and "algorithm='auto'" in str(error), error
    else:
        raise AssertionError("no error")


def check_a_forked_child_leaves_the_group_to_its_parent(strategy, folder) -> None:
    child = os.fork()
    if child == 0:
        try:
            try:
                strategy.reduce("SUM", tf.ones([]), axis=None)
            except tf.errors.CancelledError as error:
                (Path(folder) / f"told{strategy.rank}").write_text(str(error))
            strategy.close()
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    try:
        wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 20, "the child's end")
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise
    assert "forked" in (Path(folder) / f"told{strategy.rank}").read_text()
    assert float(strategy.reduce("SUM", tf.ones([]), axis=None)) == strategy.size


def check_stats_count(strategy, folder) -> None:
    before = strategy.communication_stats()
    strategy.reduce("SUM", tf.ones([1000]), axis=None)
    after = strategy.communication_stats()
    assert after.calls == before.calls + 1
    assert after.bytes_sent > before.bytes_sent and after.bytes_received > before.bytes_received
    assert after.algorithms and after.transport not in ("", "none") and after.seconds > before.seconds


def check_another_batch_size_on_one_worker_is_an_error_on_all(strategy, folder) -> None:
    x, y = rows(60)
    model = make_model(strategy)
    try:
        model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(12 + strategy.rank), verbose=0)
    except ValueError as error:
        assert "batches of 12" in str(error) and "batches of 13" in str(error) and "worker 1 (" in str(error)
    else:
        raise AssertionError("no error")


def check_another_model_on_one_worker_is_an_error_on_all(strategy, folder) -> None:
    try:
        make_model(strategy, hidden=8 + (strategy.rank == 1))
    except tf.errors.InvalidArgumentError as error:
        assert "[5,8]" in str(error) and "[5,9]" in str(error) and "initial value" in str(error), error
    else:
        raise AssertionError("no error")


if __name__ == "__main__":
    run_checks(globals(), on_cpus(2), Path(sys.argv[1]))
