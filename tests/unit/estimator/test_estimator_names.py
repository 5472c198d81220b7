"""`tfs.estimator`: `tf.estimator` where TensorFlow has it, and elsewhere one error that says what to do."""

from __future__ import annotations

import importlib

import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.estimators import needs_estimator, needs_no_estimator  # noqa: E402

NAMES = ("Estimator", "EvalSpec", "FinalExporter", "ModeKeys", "RunConfig", "TrainSpec", "train_and_evaluate")


@needs_estimator
@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_tensorflow(name: str) -> None:
    assert getattr(tfs.estimator, name) is getattr(tf.estimator, name)
    assert name in dir(tfs.estimator)


@needs_estimator
def test_a_name_that_tensorflow_does_not_have_is_none_here_either() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RunConfiguration'"):
        tfs.estimator.RunConfiguration  # noqa: B018


@needs_estimator
def test_a_run_config_keeps_the_strategy_itself() -> None:
    strategy = tfs.SyncReplicasStrategy()
    config = tfs.estimator.RunConfig(train_distribute=strategy)
    assert config.train_distribute is strategy
    assert config.replace(save_checkpoints_steps=5).train_distribute is strategy


@needs_no_estimator
@pytest.mark.parametrize("name", NAMES)
def test_without_estimator_the_error_names_the_release_and_the_keras_way(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tfs.estimator, name)
    message = str(caught.value)
    assert message.startswith(
        f"TensorFlow {tf.__version__} has no Estimator, so there is no tfs.estimator.{name}"
    )
    for told in ('pip install "tensorflow==2.15.*"', "strategy.scope()", "model.fit", "tfs.SidecarEvaluator"):
        assert told in message


@needs_no_estimator
def test_without_estimator_there_is_nothing_to_find() -> None:
    assert not hasattr(tfs.estimator, "RunConfig")
    assert dir(tfs.estimator) == []


def test_modules_of_the_package_are_found_beside_the_names() -> None:
    assert importlib.import_module("tf_strategies.session_graphs.coordinator").Coordinated
    from tf_strategies.session_graphs import effects

    assert effects.with_effects
    assert not hasattr(tfs.estimator, "__wrapped__")
