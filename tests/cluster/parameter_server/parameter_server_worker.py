"""A task of test_parameter_server.py: a server, or one of three workers that check what both strategies promise.

python -m tests.cluster.parameter_server.parameter_server_worker FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server import (
    asynchronous_checks,
    data_checks,
    mixed_precision_checks,
    synchronous_checks,
    synchronous_loss_checks,
)
from tests.cluster.parameter_server.server_models import (
    CLASSES,
    LARGE_BYTES,
    WIDTH,
    Partitioner,
    Recorder,
    compiled,
    dense_model,
    numbers,
    own_data,
    servers_of,
    word_model,
    words,
)
from tests.support.checks import run_checks
from tests.support.servers import wait_for_all, wait_for_one

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1


def check_backups_for_one_process_are_refused(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.02))
    x, y = numbers(96)
    try:
        model.fit(x, y, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(str(folder / "backup"))])
    except tfs.OptionsError as error:
        assert "use tfs.callbacks.BackupAndRestore" in str(error)
    else:
        raise AssertionError("it was taken")


def check_what_was_made_outside_the_scope_is_refused(folder: Path) -> None:
    del folder
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tfs.AsyncParameterServerStrategy(
        options=tfs.ParameterServerOptions(timeout=30), cluster=resolver
    )
    assert strategy.cluster_resolver is resolver and resolver.task_type == "worker"
    assert (strategy.rank, strategy.is_chief) == (resolver.task_id, resolver.task_id == 0)
    model = compiled(dense_model(), keras.optimizers.SGD(0.02))
    x, y = numbers(96)
    for call in (model.fit, model.train_on_batch):
        try:
            call(x, y)
        except tfs.OptionsError as error:
            assert "was made outside of strategy.scope(), but this process is" in str(error), error
            assert "Make and compile the model inside `with strategy.scope():`" in str(error), error
        else:
            raise AssertionError(f"{call.__name__} took it")
    strategy.close()


def check_variables_are_balanced_and_slots_beside_them(folder: Path) -> None:
    options = tfs.ParameterServerOptions(partitioner=Partitioner(LARGE_BYTES, max_shards=2), timeout=30)
    strategy = tfs.AsyncParameterServerStrategy(options=options)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(word_model(), keras.optimizers.Adam(0.02))
    x, y = words(240)
    recorder = Recorder()
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[recorder])
    table = model.layers[-3].embeddings
    devices = list(strategy.extended.parameter_devices)
    assert len(devices) == 2 and sorted(servers_of(table)) == devices
    moments = [each for each in variables_of(model.optimizer) if each.shape == table.shape]
    assert len(moments) == 2
    for moment in moments:
        assert servers_of(moment) == servers_of(table)
    sizes = dict.fromkeys(devices, 0)
    for weight in model.trainable_variables:
        held = weight if hasattr(weight, "parts") else weight.value
        for part in held.parts:
            sizes[part.device] += part.variable.shape.num_elements() * 4
    assert abs(sizes[devices[0]] - sizes[devices[1]]) <= WIDTH * CLASSES * 4 + 4 * CLASSES, sizes
    wait_for_all(folder, "cut", strategy.rank, strategy.size)
    assert int(model.optimizer.iterations.numpy()) == 30
    plain = word_model()
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(plain.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
    if strategy.rank == 0:
        model.save(folder / "words.keras")
        again = keras.models.load_model(folder / "words.keras")
        assert type(again.distribute_strategy) is not type(strategy)
        for kept, weight in zip(again.get_weights(), model.get_weights()):
            np.testing.assert_array_equal(kept, weight)
    wait_for_all(folder, "saved", strategy.rank, strategy.size)
    strategy.close()


def variables_of(optimizer: Any) -> list:
    found = optimizer.variables
    return list(found() if callable(found) else found)


def check_training_ends_on_all_with_the_agreed_step(folder: Path) -> None:
    last, options = 40, tfs.ParameterServerOptions(timeout=30)
    x, y = numbers(480)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(12).repeat()
    for name, strategy, overshoot in (
        ("late", tfs.AsyncParameterServerStrategy(options=options), 1),
        ("bounded", tfs.AsyncParameterServerStrategy(max_staleness=1, options=options), 2),
        ("in step", tfs.SyncReplicasStrategy(options=options), 0),
    ):
        rank, size = strategy.rank, strategy.size
        with strategy.scope():
            model = compiled(dense_model(), keras.optimizers.SGD(0.05))
        if name == "late" and rank == 2:
            wait_for_one(folder, "late stopped", 0)
            wait_for_one(folder, "late stopped", 1)
        recorder, stop = Recorder(0.02 * rank), tfs.callbacks.StopAtStep(last)
        model.fit(data, steps_per_epoch=7, epochs=100, verbose=0, callbacks=[recorder, stop])
        ended = wait_for_all(folder, f"{name} stopped", rank, size, str(len(recorder.ends)))
        steps, batches = int(model.optimizer.iterations.numpy()), [int(text) for text in ended]
        assert last <= steps <= last + overshoot, steps
        if name == "in step":
            assert batches == [last] * 3, batches
        else:
            assert sum(batches) == steps and (batches[2] == 0) == (name == "late"), (batches, steps)
        wait_for_all(folder, f"{name} compared", rank, size)
        if name == "late":
            model.fit(data, steps_per_epoch=7, epochs=2, verbose=0)  # without the callback it goes on
            wait_for_all(folder, "went on", rank, size)
            assert int(model.optimizer.iterations.numpy()) == steps + 42
        wait_for_all(folder, f"{name} counted", rank, size)
        strategy.close()


def check_logs_of_an_epoch_count_what_others_have_done_in_it(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.0))
    x, y = numbers(3 * 48)
    if strategy.rank:
        wait_for_one(folder, "fitted", strategy.rank - 1)
    mine = slice(48 * strategy.rank, 48 * strategy.rank + 48)
    data = tf.data.Dataset.from_tensor_slices((x[mine], y[mine])).batch(16).with_options(own_data())
    logs = model.fit(data, epochs=2, verbose=0).history
    wait_for_all(folder, "fitted", strategy.rank, strategy.size)
    expected = model.evaluate(x[: mine.stop], y[: mine.stop], verbose=0, return_dict=True)
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(logs[name], [expected[name]] * 2, rtol=1e-5, err_msg=name)
    wait_for_all(folder, "evaluated", strategy.rank, strategy.size)
    strategy.close()


def check_replicas_are_numbered_and_draw_differently(folder: Path) -> None:
    drawn = {}
    for kind in (tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy):
        strategy = kind(options=tfs.ParameterServerOptions(timeout=30))
        with strategy.scope():
            dropout = keras.layers.Dropout(0.5, seed=11)

        def replica(dropout: Any = dropout) -> tuple:
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.int64)
            return number, context.num_replicas_in_sync, dropout(tf.ones([64]), training=True)

        for run in (strategy.run, tf.function(strategy.run)):
            number, count, dropped = run(replica)
            in_step = kind is tfs.SyncReplicasStrategy
            assert (int(number), int(count)) == ((strategy.rank, 3) if in_step else (0, 1))
        drawn[kind] = repr(dropped.numpy().tolist())
        brought = wait_for_all(folder, f"{kind.__name__} drew", strategy.rank, strategy.size, drawn[kind])
        assert len(set(brought)) == 3
        strategy.close()
    assert len(set(drawn.values())) == 1  # what a worker draws is a matter of its rank, not of the strategy


def main(folder: Path) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    (folder / f"{task['type']}{task['index']}.pid").write_text(str(os.getpid()))
    data_checks.make_before()
    first = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    for checks in (
        globals(),
        vars(asynchronous_checks),
        vars(data_checks),
        vars(synchronous_checks),
        vars(synchronous_loss_checks),
        vars(mixed_precision_checks),
    ):
        run_checks(checks, folder)
    first.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
