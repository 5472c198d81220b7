"""The parameter-server strategies in one process, which is worker and server at once; and where variables are placed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tf_strategies.cluster import Cluster  # noqa: E402
from tf_strategies.parameter_server.placement import Placement  # noqa: E402

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

ROWS, WIDTH = 7, 2


def thirds(shape, dtype):
    return [3] + [1] * (shape.rank - 1)


@pytest.fixture(scope="module")
def cutting():
    """A strategy that cuts every variable into three parts."""
    return tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(partitioner=thirds))


@pytest.fixture(params=["whole", "cut"])
def pair(request, cutting):
    """A variable of a strategy, in one part and in three, and a plain one."""
    strategy = cutting if request.param == "cut" else tfs.AsyncParameterServerStrategy()
    first = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH) + 1
    with strategy.scope():
        mine = tf.Variable(first)
    assert [part.rows for part in mine.parts] == ([3, 2, 2] if request.param == "cut" else [ROWS])
    return mine, tf.Variable(first)


def require_equal(mine, plain) -> None:
    np.testing.assert_allclose(mine.numpy(), plain.numpy(), rtol=1e-6)
    np.testing.assert_allclose(tf.convert_to_tensor(mine), plain.numpy(), rtol=1e-6)


# --- placement ---


def placed(placement: Placement, *shapes: list) -> list:
    return [
        placement.place(f"v{number}", tf.TensorShape(shape), tf.float32)
        for number, shape in enumerate(shapes)
    ]


def test_variables_go_to_the_server_with_the_fewest_bytes() -> None:
    placement = Placement(2)
    assert placed(placement, [10], [4], [4], [], [3]) == [[(0, 10)], [(1, 4)], [(1, 4)], [(1, 0)], [(1, 3)]]
    assert placement.bytes_by_server == [40, 48]


def test_variables_go_round() -> None:
    assert placed(Placement(2, "round_robin"), [10], [4], [4]) == [[(0, 10)], [(1, 4)], [(0, 4)]]


def test_a_function_places_variables() -> None:
    seen = []

    def place(name, shape, dtype, bytes_by_server):
        seen.append((name, shape.as_list(), dtype, bytes_by_server))
        return 1

    assert placed(Placement(2, place), [10], [4]) == [[(1, 10)], [(1, 4)]]
    assert seen == [("v0", [10], tf.float32, (0, 0)), ("v1", [4], tf.float32, (0, 40))]


@pytest.mark.parametrize("result", [2, -1, None, True, 0.0, "0"])
def test_what_is_no_server_is_refused(result) -> None:
    with pytest.raises(tfs.OptionsError, match=rf"'v0' on server {result!r}; return a number from 0 to 1"):
        placed(Placement(2, lambda *_: result), [10])


def test_parts_are_placed_one_by_one() -> None:
    assert placed(Placement(2, "bytes", thirds), [7, 2], []) == [[(0, 3), (1, 2), (1, 2)], [(0, 0)]]
    assert placed(Placement(2, "bytes", thirds), [2]) == [[(0, 1), (1, 1)]]


@pytest.mark.parametrize("parts", [[0, 1], [1, 2], [2], [2.0, 1], [True, 1], []])
def test_what_is_no_partition_is_refused(parts) -> None:
    with pytest.raises(tfs.OptionsError, match=r"cut variable 'v0' of shape \(7, 2\) into \["):
        placed(Placement(2, "bytes", lambda shape, dtype: parts), [7, 2])


# --- variables ---


def test_dense_writes_are_those_of_a_plain_variable(pair) -> None:
    mine, plain = pair
    change = np.linspace(-1, 1, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    for how in ("assign_add", "assign_sub", "assign"):
        for each in pair:
            getattr(each, how)(change)
        require_equal(mine, plain)

    @tf.function
    def change_all(variable):
        variable.assign_add(tf.ones([ROWS, WIDTH]))
        before = tf.identity(variable)
        variable.assign(2.0 * variable)
        return before + variable

    np.testing.assert_allclose(change_all(mine), change_all(plain), rtol=1e-6)
    require_equal(mine, plain)
    with pytest.raises(ValueError, match=r"\(7, 2\)|\(7, 3\)"):
        mine.assign(np.zeros([ROWS, 3], "float32"))
    require_equal(mine, plain)


@pytest.mark.parametrize("how", ["add", "sub", "mul", "div", "max", "min", "update"])
def test_sparse_writes_are_those_of_a_plain_variable(pair, how) -> None:
    mine, plain = pair
    # "update" with an index twice has no defined result.
    indices = [6, 0, 3] if how == "update" else [6, 0, 3, 0]
    values = np.array([[3, 4], [5, 2], [2, 8], [7, 3]], "float32")[: len(indices)]
    for each in pair:
        getattr(each, f"scatter_{how}")(tf.IndexedSlices(values, indices))
    require_equal(mine, plain)
    with pytest.raises(TypeError, match="IndexedSlices"):
        getattr(mine, f"scatter_{how}")(values)


def test_rows_are_read_by_number(pair) -> None:
    mine, plain = pair
    for numbers in ([], [[0, 6], [3, 3]], [5, 5, 5], 2):
        numbers = np.array(numbers, "int64")
        np.testing.assert_array_equal(mine.sparse_read(numbers), plain.sparse_read(numbers))
        np.testing.assert_array_equal(tf.gather(mine, numbers), tf.gather(plain, numbers))
    read = tf.function(lambda variable, numbers: tf.nn.embedding_lookup(variable, numbers))
    np.testing.assert_array_equal(read(mine, [[1, 6]]), read(plain, [[1, 6]]))
    np.testing.assert_array_equal(mine.gather_nd([[4, 1]]), plain.gather_nd([[4, 1]]))


@pytest.mark.parametrize("traced", [False, True])
def test_gradients_are_those_of_a_plain_variable(pair, traced) -> None:
    numbers = tf.constant([[0, 6], [3, 3]])

    def gradients(variable):
        with tf.GradientTape(persistent=True) as tape:
            dense = tf.reduce_sum(tf.square(variable))
            rows = tf.reduce_sum(tf.gather(variable, numbers) ** 3)
        return tape.gradient(dense, variable), tape.gradient(rows, variable)

    if traced:
        gradients = tf.function(gradients)
    mine, plain = (gradients(variable) for variable in pair)
    np.testing.assert_allclose(mine[0], plain[0], rtol=1e-6)
    assert isinstance(mine[1], tf.IndexedSlices) and mine[1].values.shape == (4, WIDTH)
    np.testing.assert_allclose(tf.convert_to_tensor(mine[1]), tf.convert_to_tensor(plain[1]), rtol=1e-6)


def test_branches_and_loops_read_and_write(pair) -> None:
    mine, plain = pair

    @tf.function
    def step(variable, doubles):
        if doubles:
            variable.assign(variable * 2.0)
        for number in tf.range(3):
            variable.assign_add(variable.sparse_read([number])[0] + tf.zeros([ROWS, WIDTH]))
        return tf.reduce_sum(variable)

    for doubles in (tf.constant(True), tf.constant(False)):
        np.testing.assert_allclose(step(mine, doubles), step(plain, doubles), rtol=1e-6)
        require_equal(mine, plain)


@pytest.mark.parametrize("first", [True, False])
def test_both_branches_update_with_what_was_made_before_them(first: bool) -> None:
    strategy = tfs.AsyncParameterServerStrategy()
    with strategy.scope():
        variable = tf.Variable(10.0)

    def replica(is_first: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = variable * 2.0
        gradient, rate = tape.gradient(loss, variable), variable * 0.1

        def update(factor: float) -> tf.Tensor:
            strategy.extended.update(
                variable,
                lambda held, change, by: held.assign_sub(factor * change * by),
                args=(gradient, rate),
            )
            return tf.constant(0)

        def merged(_: Any) -> None:
            tf.cond(is_first, lambda: update(1.0), lambda: update(2.0))

        tf.distribute.get_replica_context().merge_call(merged)

    tf.function(lambda is_first: strategy.run(replica, (is_first,)))(tf.constant(first))
    assert variable.numpy() == (8.0 if first else 6.0)
    assert strategy.staleness_stats().count == 1


def test_checkpoints_are_those_of_a_plain_variable(pair, tmp_path: Path) -> None:
    mine, plain = pair
    kept = mine.numpy()
    for saved, restored in ((mine, plain), (plain, mine)):
        path = tf.train.Checkpoint(variable=saved).write(str(tmp_path / "checkpoint"))
        for each in pair:
            each.assign(tf.zeros([ROWS, WIDTH]))
        tf.train.Checkpoint(variable=restored).read(path).assert_consumed()
        np.testing.assert_array_equal(restored.numpy(), kept)
        saved.assign(restored.numpy())


# --- stale gradients ---


def of_all(variable) -> Any:
    return variable**3 / 3


def of_rows_twice(variable) -> Any:
    return [tf.gather(variable, [6, 1]) ** 3 / 3, tf.gather(variable, [[1], [5]]) ** 2]


def of_rows_and_all(variable) -> Any:
    return [tf.gather(variable, [6, 1, 6]) ** 2, of_all(variable)]


def of_no_rows(variable) -> Any:
    return tf.gather(variable, tf.zeros([0], tf.int64))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("loss_of", [of_all, of_rows_twice, of_rows_and_all, of_no_rows])
def test_a_delay_is_compensated_for(loss_of, traced: bool, cut: bool) -> None:
    options = tfs.ParameterServerOptions(partitioner=thirds if cut else None)
    strategy = tfs.AsyncParameterServerStrategy(damping="compensate", compensation=0.5, options=options)
    first = np.linspace(1, 2, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    others = np.linspace(-1, 1, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    with strategy.scope():
        variable = tf.Variable(first)

    def replica() -> None:
        with tf.GradientTape() as tape:
            losses = loss_of(variable)
        gradient = tape.gradient(losses, variable)
        for part in variable.parts:  # as another worker does meanwhile
            part.variable.assign_add(others[part.start : part.start + part.rows])

        def update(strategy: Any, gradient: Any) -> None:
            strategy.extended.update(variable, change, args=(gradient,), group=False)

        tf.distribute.get_replica_context().merge_call(update, args=(gradient,))

    def change(held: Any, gradient: Any) -> None:
        if isinstance(gradient, tf.IndexedSlices):
            held.scatter_sub(gradient)
        else:
            held.assign_sub(gradient)

    run = (lambda: strategy.run(replica)) if not traced else tf.function(lambda: strategy.run(replica))
    run()
    with tf.GradientTape() as tape:
        plain = tf.Variable(first)
        losses = loss_of(plain)
    stale = tf.convert_to_tensor(tape.gradient(losses, plain)).numpy()
    expected = first + others - (stale + 0.5 * stale**2 * others)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reads", [False, True])
def test_what_was_not_read_at_the_top_of_a_step_cannot_be_compensated(reads: bool) -> None:
    strategy = tfs.AsyncParameterServerStrategy(damping="compensate")
    with strategy.scope():
        variable = tf.Variable(tf.ones([ROWS, WIDTH]))

    def update(strategy: Any) -> None:
        strategy.extended.update(variable, lambda held, gradient: None, args=(variable_like,), group=False)

    def replica(which: tf.Tensor) -> None:
        if reads:
            tf.cond(which, lambda: tf.gather(variable, [1]), lambda: tf.zeros([1, WIDTH]))
        tf.distribute.get_replica_context().merge_call(update)

    variable_like = tf.ones([ROWS, WIDTH])
    run = tf.function(lambda which: strategy.run(replica, (which,)))
    with pytest.raises(ValueError, match=r"needs the value .* inside tf\.cond or a loop"):
        run(tf.constant(True))


# --- Keras ---


def model_of(layers: list, optimizer) -> keras.Model:
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def word_layers() -> list:
    return [
        keras.layers.Input((4,), dtype="int32"),
        keras.layers.Embedding(20, 6),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(3),
    ]


@pytest.mark.keras
@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("make", ["momentum", "adam"])
def test_one_process_trains_as_plain_keras_does(kind, make, tmp_path: Path) -> None:
    def optimizer():
        adam = make == "adam"
        return keras.optimizers.Adam(0.01) if adam else keras.optimizers.SGD(0.1, momentum=0.9)

    options = tfs.ParameterServerOptions(partitioner=thirds)
    kinds = {"async": tfs.AsyncParameterServerStrategy, "sync": tfs.SyncReplicasStrategy}
    strategy = kinds[kind](options=options)
    with strategy.scope():
        mine = model_of(word_layers(), optimizer())
    plain = model_of(word_layers(), optimizer())
    plain.set_weights(mine.get_weights())
    generator = np.random.default_rng(2)
    x, y = generator.integers(0, 20, (96, 4)).astype("int32"), generator.integers(0, 3, 96)
    logs = [
        model.fit(x, y, batch_size=12, epochs=6, shuffle=False, verbose=0).history for model in (mine, plain)
    ]
    for one, other in zip(mine.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert logs[0]["loss"] == pytest.approx(logs[1]["loss"], abs=1e-5)
    assert logs[0]["accuracy"] == pytest.approx(logs[1]["accuracy"])
    assert int(mine.optimizer.iterations.numpy()) == 48
    if kind == "async":
        assert strategy.staleness_stats() == strategy.staleness_stats()
        assert (strategy.staleness_stats().count, strategy.staleness_stats().maximum) == (48, 0)
    else:
        assert strategy.gradient_counts() == type(strategy.gradient_counts())((48,), (0,))

    mine.save(tmp_path / "model.keras")
    mine.save_weights(tmp_path / "model.weights.h5")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.distribute_strategy) is not type(strategy)
    plain.load_weights(tmp_path / "model.weights.h5")
    for kept, loaded, weight in zip(again.get_weights(), plain.get_weights(), mine.get_weights()):
        np.testing.assert_array_equal(kept, weight)
        np.testing.assert_array_equal(loaded, weight)


@pytest.mark.keras
@pytest.mark.parametrize("damping", ["divide", "compensate"])
def test_fresh_gradients_are_not_damped(damping) -> None:
    options = tfs.ParameterServerOptions(partitioner=thirds)
    generator = np.random.default_rng(2)
    x, y = generator.integers(0, 20, (96, 4)).astype("int32"), generator.integers(0, 3, 96)
    weights = []
    for arguments in ({}, {"damping": damping}):
        strategy = tfs.AsyncParameterServerStrategy(options=options, **arguments)
        keras.utils.set_random_seed(4)
        with strategy.scope():
            model = model_of(word_layers(), keras.optimizers.SGD(0.1, momentum=0.9))
        model.fit(x, y, batch_size=12, epochs=3, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for plain, damped in zip(*weights):
        np.testing.assert_array_equal(plain, damped)


@pytest.mark.keras
@pytest.mark.parametrize("kind", ["none", "async", "sync", "collective"])
def test_training_stops_at_a_step(kind) -> None:
    kinds = {
        "none": tf.distribute.get_strategy,
        "async": tfs.AsyncParameterServerStrategy,
        "sync": tfs.SyncReplicasStrategy,
        "collective": tfs.CollectiveAllReduceStrategy,
    }
    with kinds[kind]().scope():
        model = model_of(word_layers(), keras.optimizers.SGD(0.1))
    x, y = np.zeros([8, 4], "int32"), np.zeros([8], "int32")
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2).repeat()
    batches: list = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(batch))

    def train(last: int, epochs: int) -> list:
        batches.clear()
        stop = tfs.callbacks.StopAtStep(last)
        model.fit(data, steps_per_epoch=3, epochs=epochs, verbose=0, callbacks=[count, stop])
        assert int(model.optimizer.iterations.numpy()) <= last
        return list(batches)

    assert train(7, 100) == [0, 1, 2, 0, 1, 2, 0]
    assert train(7, 100) == []  # it was there when training began
    assert train(9, 100) == [0, 1]
    assert train(100, 1) == [0, 1, 2]  # the data ended before


@pytest.mark.parametrize("value", [0, -1, 1.5, "7", True, None])
def test_a_bad_last_step_is_refused(value) -> None:
    with pytest.raises(tfs.OptionsError, match=f"last_step must be a whole number from 1; got {value!r}"):
        tfs.callbacks.StopAtStep(value)


# --- arguments ---


@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_a_bad_bound_on_staleness_is_refused(value) -> None:
    with pytest.raises(tfs.OptionsError, match=f"max_staleness .* got {value!r}"):
        tfs.AsyncParameterServerStrategy(max_staleness=value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"damping": "halve"}, "damping must be None or one of 'divide', 'compensate'; got 'halve'"),
        ({"damping": ["divide"]}, "damping must be None or one of"),
        ({"compensation": 0.1}, "compensation goes with damping=.compensate. only; got 0.1"),
        ({"compensation": 0.1, "damping": "divide"}, "compensation goes with"),
        ({"compensation": -0.1, "damping": "compensate"}, "a finite number from 0; got -0.1"),
        ({"compensation": float("nan"), "damping": "compensate"}, "a finite number from 0; got nan"),
        ({"compensation": "1", "damping": "compensate"}, "a finite number from 0; got '1'"),
        ({"compensation": True, "damping": "compensate"}, "a finite number from 0; got True"),
    ],
)
def test_an_unknown_damping_is_refused(arguments, message) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.AsyncParameterServerStrategy(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backup_workers": 1}, "backup_workers .* from 0 to 0, .* got 1"),
        ({"backup_workers": -1}, "backup_workers .* got -1"),
        ({"backup_workers": 0.5}, "backup_workers .* got 0.5"),
        ({"replicas_to_aggregate": 0}, "replicas_to_aggregate .* from 1 to 1, .* got 0"),
        ({"replicas_to_aggregate": 2}, "replicas_to_aggregate .* got 2"),
        ({"replicas_to_aggregate": "1"}, "replicas_to_aggregate .* got '1'"),
        ({"options": {}}, "options must be a tfs.ParameterServerOptions; got {}"),
    ],
)
def test_bad_numbers_of_replicas_are_refused(arguments, message) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.SyncReplicasStrategy(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"placement": "best"}, "placement must be one of 'bytes', 'round_robin'; got 'best'"),
        ({"partitioner": 2}, "partitioner must be None or a function of shape and dtype; got 2"),
        ({"timeout": 0}, "timeout must be a finite number of seconds above 0; got 0"),
    ],
)
def test_bad_options_are_refused(arguments, message) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.ParameterServerOptions(**arguments)


@pytest.mark.parametrize("kind", [tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy])
def test_a_cluster_without_servers_is_refused(kind) -> None:
    cluster = Cluster.from_tf_config(
        '{"cluster": {"worker": ["h:1", "h:2"]}, "task": {"type": "worker", "index": 0}}'
    )
    with pytest.raises(tfs.ClusterConfigError, match=r'names no parameter server, .* list at least one "ps"'):
        kind(cluster=cluster)


def test_a_cluster_of_servers_alone_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"ps": ["h:1"]}, "task": {"type": "ps", "index": 0}}')
    with pytest.raises(tfs.ClusterConfigError, match="worker"):
        tfs.AsyncParameterServerStrategy()


def test_an_evaluator_trains_alone(monkeypatch) -> None:
    spec = '{"cluster": {"ps": ["h:1"], "worker": ["h:2"]}, "task": {"type": "evaluator", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", spec)
    strategy = tfs.AsyncParameterServerStrategy()
    assert (strategy.rank, strategy.size, len(strategy.extended.parameter_devices)) == (0, 1, 1)


@pytest.mark.parametrize("kind", [tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy])
def test_an_update_waits_for_what_its_caller_waits_for(kind) -> None:
    strategy = kind()
    with strategy.scope():
        variable = tf.Variable(1.0)

    def too_late() -> None:
        time.sleep(0.3)
        raise ValueError("the batch is bad")

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        def replica(gradient: tf.Tensor) -> None:
            bad = tf.numpy_function(too_late, [], [])
            with tf.control_dependencies([bad]):
                strategy.extended.update(variable, lambda each, by: each.assign_sub(by), args=(gradient,))

        strategy.run(replica, args=(gradient,))

    with pytest.raises(tf.errors.OpError, match="the batch is bad"):
        step(tf.constant(1.0))
    assert float(variable.numpy()) == 1.0
