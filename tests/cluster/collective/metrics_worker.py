"""One of several workers that train with metrics and callbacks.

python -m tests.cluster.collective.metrics_worker FOLDER REPLICAS

The oracle is the same model in this process alone, on the joint batches.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.support import replicas
from tests.support.checks import run_checks

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
ROWS, FEATURES, BATCH = 44, 4, 12  # batches of 12, 12, 12 and 8: the last does not divide evenly


class MeanError(keras.metrics.Metric):
    """A metric of a user's own: the weighted mean of |y − p|."""

    def __init__(self, name: str = "mean_error") -> None:
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None) -> None:
        errors = tf.abs(tf.cast(y_true, tf.float32) - tf.cast(y_pred, tf.float32))
        weights = tf.ones_like(errors)
        if sample_weight is not None:
            weights *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
        self.total.assign_add(tf.reduce_sum(errors * weights))
        self.count.assign_add(tf.reduce_sum(weights))

    def result(self):
        return tf.math.divide_no_nan(tf.convert_to_tensor(self.total), tf.convert_to_tensor(self.count))


def squared_error(y_true, y_pred):
    return tf.square(tf.cast(y_true, tf.float32) - y_pred)


class Recorder(keras.callbacks.Callback):
    """All logs that a callback is shown, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list = []

    def _add(self, event: str, logs) -> None:
        self.seen.append((event, {name: float(value) for name, value in sorted((logs or {}).items())}))

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._add("train batch", logs)

    def on_test_batch_end(self, batch, logs=None) -> None:
        self._add("test batch", logs)

    def on_test_end(self, logs=None) -> None:
        self._add("test", logs)

    def on_epoch_end(self, epoch, logs=None) -> None:
        self._add("epoch", logs)

    def on_train_end(self, logs=None) -> None:
        self._add("train", logs)

    def numbers(self) -> list:
        return [value for _, logs in self.seen for value in logs.values()]


def rows() -> tuple:
    generator = np.random.default_rng(5)
    x = generator.standard_normal((ROWS, FEATURES)).astype("float32")
    y = (x[:, :1] + 0.8 * generator.standard_normal((ROWS, 1)) > 0).astype("float32")
    return x, y, generator.uniform(0.2, 3.0, ROWS).astype("float32")


def build() -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.Input((FEATURES,)),
            keras.layers.Dense(6, activation="tanh"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        "binary_crossentropy",
        metrics=[
            "accuracy",
            keras.metrics.AUC(name="area"),
            keras.metrics.Precision(name="precision"),
            squared_error,
        ],
        weighted_metrics=[keras.metrics.AUC(name="weighted_area"), MeanError()],
    )
    return model


@functools.cache
def pair(strategy) -> tuple:
    """A model over all workers, and one in this process alone with the same weights; checks go on with them."""
    with strategy.scope():
        model = build()
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        alone = build()
    alone.set_weights(model.get_weights())
    first_weights(model)
    return model, alone


@functools.cache
def first_weights(model) -> list:
    return model.get_weights()


def fresh(strategy, rate: float = 0.1) -> keras.Model:
    """The model over all workers with the weights it had first."""
    model, _ = pair(strategy)
    model.set_weights(first_weights(model))
    model.optimizer.learning_rate = rate
    return model


require_equal_everywhere = functools.partial(replicas.require_equal_everywhere, finite=False)


def require_same_logs(strategy, ours: Recorder, oracle: Recorder) -> None:
    assert [(event, list(logs)) for event, logs in ours.seen] == [
        (event, list(logs)) for event, logs in oracle.seen
    ]
    for (event, ours_logs), (_, oracle_logs) in zip(ours.seen, oracle.seen):
        for name, value in oracle_logs.items():
            assert abs(ours_logs[name] - value) < 2e-5 * max(1.0, abs(value)), (
                event,
                name,
                ours_logs,
                oracle_logs,
            )
    require_equal_everywhere(strategy, ours.numbers())


def fit_both(strategy, **arguments) -> Recorder:
    model, alone = pair(strategy)
    recorders = [Recorder(), Recorder()]
    x, y, _ = rows()
    for each, recorder in zip((model, alone), recorders):
        each.fit(
            x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[recorder], **arguments
        )
    require_same_logs(strategy, *recorders)
    return recorders[0]


def check_all_logs_are_those_of_one_process(strategy, folder) -> None:
    x, y, weights = rows()
    seen = fit_both(strategy, sample_weight=weights, validation_data=(x[:20], y[:20], weights[:20])).seen
    events = [event for event, _ in seen]
    assert events.count("train batch") == 8 and events.count("test batch") == 4 and events.count("epoch") == 2
    for name in ("loss", "accuracy", "area", "precision", "squared_error", "weighted_area", "mean_error"):
        assert name in seen[0][1], seen[0]


def check_class_weights_count_as_in_one_process(strategy, folder) -> None:
    fit_both(strategy, class_weight={0: 1.0, 1: 4.0})


def check_evaluate_is_that_of_one_process(strategy, folder) -> None:
    x, y, weights = rows()
    model, alone = pair(strategy)
    recorders = [Recorder(), Recorder()]
    results = [
        each.evaluate(
            x, y, sample_weight=weights, batch_size=BATCH, verbose=0, callbacks=[recorder], return_dict=True
        )
        for each, recorder in zip((model, alone), recorders)
    ]
    require_same_logs(strategy, *recorders)
    assert sorted(results[0]) == sorted(results[1])
    for name, value in results[1].items():
        assert abs(results[0][name] - value) < 2e-5, (name, results)
    require_equal_everywhere(strategy, [results[0][name] for name in sorted(results[0])])


def check_evaluating_again_gives_the_same(strategy, folder) -> None:
    model = fresh(strategy)
    x, y, _ = rows()
    first = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    again = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    assert first == again
    require_equal_everywhere(strategy, first)


def check_early_stopping_stops_all_in_the_same_epoch(strategy, folder) -> None:
    x, y, _ = rows()
    y_wrong = y.copy()
    y_wrong[strategy.size - 1 :: strategy.size] = 1 - y_wrong[strategy.size - 1 :: strategy.size]
    model = fresh(strategy, rate=0.3)
    stopper = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=40,
        validation_data=(x[:30], y_wrong[:30]),
        verbose=0,
        shuffle=False,
        callbacks=[stopper],
    ).history
    require_equal_everywhere(strategy, [stopper.stopped_epoch, stopper.best, len(history["loss"])])
    assert 0 < stopper.stopped_epoch < 39
    require_equal_everywhere(strategy, np.concatenate([each.ravel() for each in model.get_weights()]))
    require_equal_everywhere(strategy, [value for name in sorted(history) for value in history[name]])


def rate_of(model) -> float:
    return float(tf.convert_to_tensor(model.optimizer.learning_rate))


def check_the_learning_rate_changes_alike(strategy, folder) -> None:
    x, y, _ = rows()
    model = fresh(strategy, rate=0.5)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=0.05)
    rates = []
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=8,
        verbose=0,
        shuffle=False,
        callbacks=[
            plateau,
            keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: rates.append(rate_of(model))),
        ],
    )
    require_equal_everywhere(strategy, rates)
    assert rates[-1] < 0.5
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 / (epoch + 1))
    model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0, callbacks=[scheduler])
    require_equal_everywhere(strategy, [rate_of(model)])
    assert abs(rate_of(model) - 0.01 / 3) < 1e-8


def check_the_chief_alone_keeps_the_best_weights(strategy, folder) -> None:
    x, y, _ = rows()
    model = fresh(strategy, rate=1.5)
    mine = folder / f"checkpoint-{strategy.rank}"
    mine.mkdir()
    path = mine / "best.weights.h5"
    kept: list = []
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=6,
        validation_data=(x[::-1], 1 - y[::-1]),
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.ModelCheckpoint(
                str(path), monitor="val_loss", save_best_only=True, save_weights_only=True
            ),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: kept.append(model.get_weights())),
        ],
    ).history
    assert [each.name for each in mine.iterdir()] == (["best.weights.h5"] if strategy.rank == 0 else [])
    require_equal_everywhere(strategy, history["val_loss"])
    best = int(np.argmin(history["val_loss"]))
    if strategy.rank == 0:
        loaded = build()
        loaded.load_weights(str(path))
        for found, expected in zip(loaded.get_weights(), kept[best]):
            np.testing.assert_array_equal(found, expected)


def check_the_chief_alone_writes_logs(strategy, folder) -> None:
    x, y, _ = rows()
    model = fresh(strategy)
    mine = folder / f"logs-{strategy.rank}"
    mine.mkdir()
    callbacks = [keras.callbacks.CSVLogger(str(mine / "log.csv"))]
    if importlib.util.find_spec("tensorboard"):
        callbacks.append(keras.callbacks.TensorBoard(str(mine / "board"), update_freq="batch"))
    history = model.fit(
        x, y, batch_size=BATCH, epochs=2, validation_split=0.25, verbose=0, callbacks=callbacks
    ).history
    written = sorted(each.name for each in mine.iterdir())
    if strategy.rank:
        assert written == []
    else:
        assert written == (["board", "log.csv"] if len(callbacks) == 2 else ["log.csv"])
        table = list(csv.DictReader((mine / "log.csv").open()))
        assert [float(row["loss"]) for row in table] == history["loss"]
        if len(callbacks) == 2:
            assert any(each.name.startswith("events.out") for each in (mine / "board").rglob("*"))
    assert len(history["val_area"]) == 2
    require_equal_everywhere(strategy, [value for name in sorted(history) for value in history[name]])


def check_one_progress_bar_is_shown(strategy, folder) -> None:
    x, y, _ = rows()
    model = fresh(strategy)
    print("\nbar begins", flush=True)
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=1)
    model.evaluate(x, y, batch_size=BATCH, verbose=1)
    model.predict(x, batch_size=BATCH, verbose=1)
    print("\nbar ends", flush=True)


def check_callbacks_and_verbosity_may_differ_between_workers(strategy, folder) -> None:
    x, y, _ = rows()
    model = fresh(strategy)
    recorder = Recorder()
    here = strategy.rank == strategy.size - 1
    print("\nquiet begins", flush=True)
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=2,
        validation_split=0.25,
        verbose=1 if here else 0,
        callbacks=[recorder] if here else None,
    ).history
    print("\nquiet ends", flush=True)
    assert bool(recorder.seen) == here
    require_equal_everywhere(strategy, [value for name in sorted(history) for value in history[name]])
    if here:
        losses = [logs["loss"] for event, logs in recorder.seen if event == "epoch"]
        assert losses == history["loss"]


def check_nan_on_one_worker_terminates_all_at_the_same_batch(strategy, folder) -> None:
    x, y, _ = rows()
    x[2 * BATCH - 1] = np.nan  # the last row of the second batch: the last worker's
    model = fresh(strategy)
    recorder = Recorder()
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=3,
        verbose=0,
        shuffle=False,
        callbacks=[keras.callbacks.TerminateOnNaN(), recorder],
    )
    batches = [logs["loss"] for event, logs in recorder.seen if event == "train batch"]
    require_equal_everywhere(strategy, [len(batches)])
    assert len(batches) == 2 and np.isnan(batches[1])


def main(folder: Path, local: int) -> None:
    strategy = replicas.on_cpus(local)
    keras.utils.set_random_seed(1)
    run_checks(globals(), strategy, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
