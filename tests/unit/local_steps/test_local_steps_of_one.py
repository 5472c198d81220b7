"""Local steps with one worker, and what they are refused with."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.cluster.local_steps.oracle import weights_after  # noqa: E402
from tests.cluster.local_steps.task import BATCH, EPOCHS, PROGRAMS, Program, make_model, make_rows  # noqa: E402

pytestmark = pytest.mark.keras


def fit(program: Program) -> Any:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0"], local_steps=program.options)
    with strategy.scope():
        model = make_model(program)
    x, y = make_rows(program.repeats)
    model.fit(x, y, batch_size=BATCH, shuffle=False, epochs=EPOCHS, verbose=0)
    return model


@pytest.mark.parametrize("name", ["averages", "outer optimizer"])
def test_one_worker_is_a_special_case_of_many(name: str) -> None:
    for found, wanted in zip(fit(PROGRAMS[name]).get_weights(), weights_after(PROGRAMS[name], 1)):
        np.testing.assert_allclose(found, wanted, atol=3e-5)


@pytest.mark.parametrize(("fragments", "overlap_steps"), [(2, 0), (3, 1)])
def test_fragments_are_averaged_in_turn_and_beside_training(fragments: int, overlap_steps: int) -> None:
    options = tfs.DiLoCo(sync_every=6, fragments=fragments, overlap_steps=overlap_steps)
    program = Program(options, "slow sgd", normalizes=True, repeats=3)
    for found, wanted in zip(fit(program).get_weights(), weights_after(program, 1)):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_evaluation_comes_after_an_average() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(local_steps=tfs.DiLoCo(sync_every=100, outer_momentum=0.0))
    with strategy.scope():
        model = make_model(PROGRAMS["every step"])
    before = model.get_weights()
    x, y = make_rows()
    model.train_on_batch(x, y)
    stepped = model.get_weights()
    model.evaluate(x, y, verbose=0)
    for start, local, found in zip(before, stepped, model.get_weights()):
        np.testing.assert_allclose(found, start + 0.7 * (local - start), atol=1e-6)


def test_a_change_of_the_workers_puts_back_some_models_and_loses_others() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(local_steps=tfs.DiLoCo(sync_every=4))
    x, y = make_rows()
    with strategy.scope():
        back, lost, equal = (make_model(PROGRAMS["outer optimizer"]) for _ in range(3))
    for model in (back, lost, equal):
        model.train_on_batch(x, y)
    strategy.average_weights(equal)
    velocity = [each.numpy() for each in strategy.state_of_local_steps(equal)]
    assert np.any(velocity[0])
    assert strategy.models_that_differ() == [back, lost]
    strategy.begin_local_steps_again([back])
    assert strategy.models_that_differ() == [back]
    assert not any(strategy.is_between_averages(model) for model in (back, lost, equal))
    for kept, value in zip(strategy.state_of_local_steps(equal), velocity):
        np.testing.assert_array_equal(kept, value)
    for model in (back, equal):
        model.train_on_batch(x, y)
    with pytest.raises(tfs.OptionsError, match="took local steps when the workers changed"):
        lost.train_on_batch(x, y)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"compression": tfs.compression.Half()}, "local_steps cannot be used with compression: gradients"),
        (
            {"elastic": tfs.Elastic(), "local_steps": tfs.DiLoCo(sync_every=4, fragments=2)},
            "local_steps cannot be used with elastic and fragments or overlap_steps: after a loss",
        ),
        ({"step_losses": "sum"}, 'local_steps cannot be used with step_losses="sum": a worker'),
        ({"local_steps": 4}, "local_steps must be a tfs.LocalSGD or a tfs.DiLoCo; got 4"),
    ],
)
def test_what_does_not_go_together_is_refused(others: Dict[str, Any], message: str) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.CollectiveAllReduceStrategy(**{"local_steps": tfs.LocalSGD(sync_every=2), **others})


def test_a_loop_that_applies_gradients_is_refused() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(local_steps=tfs.LocalSGD(sync_every=2))
    with strategy.scope():
        model = make_model(PROGRAMS["every step"])

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(make_rows()[0]))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    @tf.function
    def in_function() -> None:
        with strategy.local_step(model):
            strategy.run(step)

    with pytest.raises(tfs.OptionsError, match=r"cannot be used in a tf\.function"):
        in_function()
    with pytest.raises(tfs.OptionsError, match=r"outside of `with strategy.local_step\(model\):`"):
        strategy.run(step)


def test_local_steps_of_loops_that_would_not_be_averaged_are_refused() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0"], local_steps=tfs.LocalSGD(sync_every=2))
    with strategy.scope():
        first, second = (make_model(PROGRAMS["every step"]) for _ in range(2))

    def train(model: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(make_rows()[0]))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    with pytest.raises(tfs.OptionsError, match="belongs to no model that"), strategy.local_step(first):
        strategy.run(train, args=(second,))
    with pytest.raises(tfs.OptionsError, match="has not been trained by this strategy"):
        strategy.average_weights(second)
    with (
        pytest.raises(tfs.OptionsError, match="give all models to one"),
        strategy.local_step(second),
        strategy.local_step(second),
    ):
        pass
    step = tf.function(lambda: strategy.run(train, args=(second,)))
    with strategy.local_step(second):
        step()
    step()
    with pytest.raises(tfs.OptionsError, match="called outside of it"):
        strategy.average_weights(second)


def test_the_warm_up_counts_the_optimizer_that_steps() -> None:
    class TwoOptimizers(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def compile(self, other: Any) -> None:
            super().compile()  # with an optimizer that takes no step
            self.other = other

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(data[0]) - data[1]))
            variables = self.trainable_variables
            self.other.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return {"loss": loss}

    options = tfs.DiLoCo(sync_every=100, warmup_steps=2, outer_learning_rate=0.5, outer_momentum=0.0)
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0"], local_steps=options)
    with strategy.scope():
        model = TwoOptimizers()
        model.build([None, 8])
        model.compile(tf.keras.optimizers.SGD(0.01))
    x, y = make_rows()
    for _ in range(2):
        model.train_on_batch(x, y)
    before = model.get_weights()
    model.train_on_batch(x, y)
    after = model.get_weights()
    strategy.average_weights(model)
    for start, local, found in zip(before, after, model.get_weights()):
        np.testing.assert_allclose(found, (start + local) / 2, atol=1e-6)
