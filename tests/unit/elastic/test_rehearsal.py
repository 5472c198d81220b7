"""The step that a newcomer takes before it joins the others, in a `fit` of one process."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Iterator, List

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies.elastic.fits import _can_be_reused  # noqa: E402
from tf_strategies.elastic.rehearsal import may_change_functions, rehearse  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
ROWS = np.ones([8, 3], "float32"), np.ones([8, 1], "float32")


@pytest.fixture
def model() -> Any:
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_it_is_one_step_of_training(model: Any) -> None:
    seen: List[str] = []

    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        seen.append("alone")
        yield

    def fit(**changes: Any) -> None:
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append("batch"))
        changes["callbacks"].insert(0, count)
        model.fit(*ROWS, epochs=5, batch_size=2, validation_data=ROWS, **changes)

    assert rehearse(alone(), fit, "worker 1")
    assert seen == ["alone", "batch"]
    assert model.train_function is not None
    assert model.test_function is None


def test_an_error_is_told_and_does_not_end_the_worker(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fit(**changes: Any) -> None:
        raise ValueError("the rows are missing")

    with caplog.at_level(logging.WARNING):
        assert not rehearse(contextlib.nullcontext(), fit, "worker 1 (10.0.0.2:2222)")
    assert (
        "worker 1 (10.0.0.2:2222) joins the others without a step of its own before: ValueError: the rows are missing"
        in caplog.text
    )


def test_a_fit_without_a_step_leaves_the_functions_to_be_traced(model: Any) -> None:
    fit = lambda **changes: model.fit(*ROWS, epochs=0, **changes)  # noqa: E731
    assert not rehearse(contextlib.nullcontext(), fit, "worker 1")


class AtTheEnd(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        pass


class Before(AtTheEnd):
    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.model.factor = epoch


class KeepsBest(keras.callbacks.ModelCheckpoint):
    def on_train_begin(self, logs: object = None) -> None:
        self.model.layers[0].trainable = False


@pytest.mark.parametrize(
    ("make", "may"),
    [
        (lambda: keras.callbacks.EarlyStopping("loss"), False),
        (lambda: keras.callbacks.CSVLogger("log.csv"), False),
        (lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate), False),
        (lambda: keras.callbacks.TensorBoard("logs"), False),
        (lambda: keras.callbacks.TensorBoard("logs", update_freq=5), True),
        (lambda: keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: None), True),
        (AtTheEnd, False),
        (Before, True),
        (lambda: KeepsBest("best.weights.h5"), True),
    ],
)
def test_code_of_the_user_before_the_first_step_may_change_functions(make: Any, may: bool) -> None:
    assert may_change_functions([AtTheEnd(), make()]) is may


@pytest.mark.parametrize(
    ("functions", "are_new", "can"),
    [
        ([["train"], ["train"]], [False, False], True),
        ([["train"], None], [False, False], False),
        ([["train", "test"], ["train"]], [False, False], True),  # both have traced what they needed
        ([["train", "test"], ["train"]], [False, True], True),
        ([["train"], ["train", "test"]], [False, True], False),
        ([["train"], ["other"], ["train"]], [False, True, False], False),
        ([["train"], None], [False, True], False),
    ],
)
def test_functions_can_be_reused_if_the_others_have_those_of_newcomers(functions, are_new, can) -> None:
    assert _can_be_reused(functions, are_new) is can
