"""A worker of test_estimator_collective.py: Estimators trained by CollectiveAllReduceStrategy.

python -m tests.cluster.estimator.estimator_collective_worker FOLDER [CHECK...]
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import Any, ClassVar, List, Optional, Sequence

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.estimator import estimator_models as models
from tests.support.checks import run_checks

fc = tf.feature_column
OPTIONS = tfs.CommunicationOptions(timeout=60, bytes_per_pack=1 << 20)


def configured(strategy: Any, **settings: Any) -> tf.estimator.RunConfig:
    settings.setdefault("save_summary_steps", 2)
    return tf.estimator.RunConfig(
        train_distribute=strategy, eval_distribute=strategy, log_step_count_steps=3, **settings
    )


def train(
    estimator: tf.estimator.Estimator,
    input_fn: Any = models.sharded_input,
    hooks: Sequence[tf.estimator.SessionRunHook] = (),
    max_steps: int = models.STEPS,
) -> models.Losses:
    """Trains by train_and_evaluate; the losses of all steps."""
    losses = models.Losses()
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=max_steps, hooks=[losses, *hooks]),
        tf.estimator.EvalSpec(input_fn, steps=1),
    )
    return losses


def trained_alone(
    make: Any, input_fn: Any = models.sharded_input, max_steps: int = models.STEPS
) -> List[float]:
    """The losses of plain TensorFlow in one process with the joint batches; `make` makes the Estimator of a RunConfig."""
    cluster = os.environ.pop("TF_CONFIG", None)
    try:
        losses = models.Losses()
        make(tf.estimator.RunConfig()).train(input_fn, hooks=[losses], max_steps=max_steps)
        return losses.losses
    finally:
        if cluster is not None:
            os.environ["TF_CONFIG"] = cluster


def require_same_weights(strategy: Any, weights: models.Weights) -> None:
    """All workers hold the same bits."""
    digest = hashlib.sha256()
    for name, value in sorted(weights.values.items()):
        digest.update(name.encode() + value.tobytes())
    strategy.require_agreement("the weights", digest.hexdigest())


def require_curve(
    strategy: Any, losses: models.Losses, make: Any, input_fn: Any = models.sharded_input, times: int = 1
) -> None:
    """The losses are so many times those of one process with the joint batches, which the chief trains."""
    if strategy.rank == 0:
        alone = trained_alone(make, input_fn, len(losses.losses))
        np.testing.assert_allclose(losses.losses, times * np.array(alone), rtol=1e-5)


def model_dir(folder: Path, strategy: Any, name: str) -> str:
    """A folder of this worker alone: that others write nothing into theirs is seen in the end."""
    return str(folder / name / f"of-{strategy.rank}")


def check_v1_optimizer_with_batch_normalization(folder: Path, strategy: Any) -> None:
    def make(config: tf.estimator.RunConfig, where: Optional[str] = None) -> tf.estimator.Estimator:
        return tf.estimator.Estimator(models.model_fn, where, config, params={"saver": True})

    where, weights = model_dir(folder, strategy, "v1"), models.Weights()
    losses = train(make(configured(strategy, save_checkpoints_steps=3), where), hooks=[weights])
    assert losses.steps == list(range(1, models.STEPS + 1))
    require_curve(strategy, losses, make)
    require_same_weights(strategy, weights)
    if strategy.rank == 0:
        saved = tf.train.load_checkpoint(where)
        assert any("moving_mean" in name for name in weights.values)
        for name, value in weights.values.items():
            np.testing.assert_array_equal(saved.get_tensor(name), value)
        assert any(Path(where).glob("events.*"))


def check_legacy_keras_optimizer(folder: Path, strategy: Any) -> None:
    def make(config: tf.estimator.RunConfig, where: Optional[str] = None) -> tf.estimator.Estimator:
        return tf.estimator.Estimator(models.model_fn, where, config, params={"optimizer": "keras"})

    weights = models.Weights()
    losses = train(make(configured(strategy), model_dir(folder, strategy, "keras")), hooks=[weights])
    require_curve(strategy, losses, make)
    require_same_weights(strategy, weights)


def check_two_local_replicas(folder: Path, strategy: Any) -> None:
    del strategy
    both = tfs.CollectiveAllReduceStrategy(OPTIONS, devices=["CPU:0", "CPU:1"])

    for how in ("of all", "of each"):

        def make(config: tf.estimator.RunConfig, where: Optional[str] = None) -> tf.estimator.Estimator:
            return tf.estimator.Estimator(models.model_fn, where, config, params={"normalization": how})

        weights = models.Weights()
        losses = train(make(configured(both), model_dir(folder, both, f"local {how}")), hooks=[weights])
        require_same_weights(both, weights)
        if how == "of all":
            require_curve(both, losses, make)


def check_the_group_goes_on_from_the_checkpoint_of_the_chief(folder: Path, strategy: Any) -> None:
    def make() -> tf.estimator.Estimator:
        return tf.estimator.Estimator(
            models.model_fn, model_dir(folder, strategy, "continued"), configured(strategy), params={}
        )

    def rest(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        return models.sharded_input(input_context).skip(3)

    losses = train(make(), max_steps=3)
    weights = models.Weights()
    more = train(make(), rest, hooks=[weights])
    assert more.steps == list(range(4, models.STEPS + 1))
    losses.losses += more.losses
    require_curve(
        strategy, losses, lambda config: tf.estimator.Estimator(models.model_fn, None, config, params={})
    )
    require_same_weights(strategy, weights)


def check_compressed(folder: Path, strategy: Any) -> None:
    def make(used: Any, name: str) -> tf.estimator.Estimator:
        return tf.estimator.Estimator(
            models.model_fn, model_dir(folder, strategy, name), configured(used), params={}
        )

    plain = train(make(strategy, "plain"))
    for name, compressor in (
        ("topk", tfs.compression.TopK(0.3, min_elements=1)),
        ("random", tfs.compression.RandomK(0.3, min_elements=1)),
        ("dgc", tfs.compression.DeepGradientCompression(0.3, min_elements=1)),
        ("quantized", tfs.compression.Quantize8(min_elements=1)),
        ("half", tfs.compression.Half()),
    ):
        used = tfs.CollectiveAllReduceStrategy(OPTIONS, compression=compressor, devices=["CPU:0"])
        weights = models.Weights()
        losses = train(make(used, name), hooks=[weights])
        require_same_weights(strategy, weights)
        assert losses.losses[0] == plain.losses[0]
        assert losses.losses[2:] != plain.losses[2:]
        if name == "half":
            np.testing.assert_allclose(losses.losses, plain.losses, rtol=1e-2)
        counts = [int(value) for key, value in weights.values.items() if key.rpartition("/")[2] == "step"]
        assert not counts or counts == [models.STEPS], weights.values.keys()


def words(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
    """Features by name, one of words, and labels [n, 1]."""

    def named(x: tf.Tensor, y: tf.Tensor) -> tuple:
        word = tf.gather(["a", "b", "c"], tf.cast(tf.abs(x[:, 1]) * 10, tf.int32) % 3)
        return {"x": x[:, :1], "word": tf.sparse.from_dense(word[:, tf.newaxis])}, tf.cast(y > 0, tf.int32)

    return models.sharded_input(input_context).map(named)


def check_canned_estimators(folder: Path, strategy: Any) -> None:
    vocabulary = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
    number = fc.numeric_column("x")
    embedded = fc.embedding_column(vocabulary, 3)

    def linear(
        config: tf.estimator.RunConfig, where: Any = None, start: Any = None
    ) -> tf.estimator.Estimator:
        optimizer = functools.partial(tf.keras.optimizers.legacy.SGD, 0.1)
        return tf.estimator.LinearClassifier(
            [number, vocabulary], where, config=config, optimizer=optimizer, warm_start_from=start
        )

    def deep(config: tf.estimator.RunConfig, where: Any = None, start: Any = None) -> tf.estimator.Estimator:
        optimizer = functools.partial(tf.keras.optimizers.legacy.Adagrad, 0.1)
        return tf.estimator.DNNClassifier(
            [4], [number, embedded], where, config=config, optimizer=optimizer, warm_start_from=start
        )

    for name, make in (("linear", linear), ("deep", deep)):
        weights, where = models.Weights(), model_dir(folder, strategy, name)
        losses = train(make(configured(strategy), where), words, hooks=[weights])
        same_start = tf.estimator.WarmStartSettings(f"{where}/model.ckpt-0", [".*"])
        # Estimator reports the sum over replicas of the losses of these, and trains with their mean.
        require_curve(strategy, losses, functools.partial(make, start=same_start), words, times=strategy.size)
        require_same_weights(strategy, weights)


def check_model_to_estimator(folder: Path, strategy: Any) -> None:
    def make(config: tf.estimator.RunConfig, where: Optional[str] = None) -> tf.estimator.Estimator:
        tf.keras.backend.clear_session()
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((models.FEATURES,)),
                models.dense(4, 1, activation="tanh"),
                models.dense(1, 2),
            ]
        )
        model.compile(tf.keras.optimizers.legacy.SGD(0.05, 0.9), "mse", metrics=["mae"])
        return tf.keras.estimator.model_to_estimator(model, config=config, model_dir=where)

    weights = models.Weights()
    losses = train(make(configured(strategy), model_dir(folder, strategy, "converted")), hooks=[weights])
    require_curve(strategy, losses, make)
    require_same_weights(strategy, weights)


def check_early_stopping_stops_all(folder: Path, strategy: Any) -> None:
    asked: List[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return strategy.rank == 0 and len(asked) == 2

    def custom(estimator: tf.estimator.Estimator) -> tf.estimator.SessionRunHook:
        return tf.estimator.experimental.make_early_stopping_hook(
            estimator, should_stop, run_every_secs=None, run_every_steps=2
        )

    def of_evaluations(estimator: tf.estimator.Estimator) -> tf.estimator.SessionRunHook:
        evaluated = folder / f"evaluated-{strategy.rank}"
        if strategy.rank == 0:
            with tf.Graph().as_default(), tf.compat.v1.summary.FileWriter(str(evaluated)) as writer:
                for step in range(4):
                    value = tf.compat.v1.Summary.Value(tag="loss", simple_value=1.0 + step)
                    writer.add_summary(tf.compat.v1.Summary(value=[value]), step)
        return tf.estimator.experimental.stop_if_no_decrease_hook(
            estimator, "loss", 2, eval_dir=str(evaluated), run_every_secs=None, run_every_steps=3
        )

    for name, make_hook in (("custom", custom), ("evaluations", of_evaluations)):
        where = model_dir(folder, strategy, f"stopped-{name}")
        estimator = tf.estimator.Estimator(models.model_fn, where, configured(strategy), params={})
        losses = train(estimator, hooks=[make_hook(estimator)])
        strategy.require_agreement("the steps", str(losses.steps))
        assert 1 < len(losses.steps) < models.STEPS, losses.steps


def check_training_ends_with_the_first_who_has_no_batch(folder: Path, strategy: Any) -> None:
    def uneven(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        last = input_context.input_pipeline_id == input_context.num_input_pipelines - 1
        return models.sharded_input(input_context).take(3 if last else 5)

    where = model_dir(folder, strategy, "uneven")
    losses = train(tf.estimator.Estimator(models.model_fn, where, configured(strategy), params={}), uneven)
    assert losses.steps == [1, 2, 3]
    if strategy.rank == 0:
        assert tf.train.latest_checkpoint(where).endswith("-3")


def check_hooks_of_the_chief_and_plain_input_functions(folder: Path, strategy: Any) -> None:
    class Listener(tf.estimator.CheckpointSaverListener):
        # Of the class: Estimator trains with copies of its params.
        saved: ClassVar[List[int]] = []

        def after_save(self, session: Any, global_step_value: int) -> None:
            self.saved.append(int(global_step_value))

    def same_everywhere() -> tf.data.Dataset:
        return models.sharded_input().repeat()

    where, listener = model_dir(folder, strategy, "listened"), Listener()
    saver = tf.estimator.CheckpointSaverHook(where, save_steps=2, listeners=[listener])
    estimator = tf.estimator.Estimator(
        models.model_fn, where, configured(strategy), params={"chief_hooks": [saver]}
    )
    losses = train(estimator, same_everywhere, max_steps=2 * models.STEPS - 1)
    assert losses.steps == list(range(1, 2 * models.STEPS))
    expected = [0, *range(2, 2 * models.STEPS, 2)]
    assert listener.saved[: len(expected)] == (expected if strategy.rank == 0 else []), listener.saved


def check_different_models_are_an_error(folder: Path, strategy: Any) -> None:
    def different(features: Any, labels: Any, mode: str) -> tf.estimator.EstimatorSpec:
        predicted = models.dense(1 + strategy.rank, 1)(features)
        loss = tf.reduce_mean(predicted**2)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        update = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update)

    try:
        train(
            tf.estimator.Estimator(different, model_dir(folder, strategy, "different"), configured(strategy))
        )
    except tf.errors.OpError as error:
        assert "initial value of dense/" in str(error), error
        assert all(strategy.name_of(rank) in str(error) for rank in range(strategy.size)), error
    else:
        raise AssertionError("workers trained different models")


def main() -> None:
    folder, only = Path(sys.argv[1]), sys.argv[2:]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tfs.CollectiveAllReduceStrategy(OPTIONS, devices=["CPU:0"])
    run_checks(globals(), folder, strategy, only=only)
    written = [each for each in folder.rglob(f"of-{strategy.rank}/*") if each.name != "keras"]
    assert bool(written) == (strategy.rank == 0), written


if __name__ == "__main__":
    main()
