"""What the strategies do for tf.estimator, piece by piece, in one process."""

from __future__ import annotations

import copy

import pytest
import tensorflow as tf

import tf_strategies as tfs
from tests.support.estimators import needs_estimator
from tf_strategies.compression.gradient_state import GradientState
from tf_strategies.session_graphs.coordinator import carried_through
from tf_strategies.session_graphs.final_errors import final_errors, with_final_errors
from tf_strategies.session_graphs.program_order import in_program_order
from tf_strategies.session_graphs.side_thread import eagerly
from tf_strategies.session_graphs.train_op import followed_by

_CLUSTER = '{"cluster": {"chief": ["h:1"], "worker": ["h:2"]}, "task": {"type": "%s", "index": 0}}'


def test_an_evaluator_has_a_strategy_of_its_own(monkeypatch) -> None:
    monkeypatch.setenv("TF_CONFIG", _CLUSTER % "evaluator")
    if not hasattr(tf, "estimator"):
        with pytest.raises(tfs.ClusterConfigError, match="evaluator 0, which takes no part"):
            tfs.CollectiveAllReduceStrategy()
        return
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0"])
    assert not strategy.extended.should_checkpoint
    assert (strategy.rank, strategy.size, strategy.num_replicas_in_sync) == (0, 1, 1)
    assert strategy.cluster_resolver.task_type == "evaluator"


def test_a_parameter_server_has_none(monkeypatch) -> None:
    monkeypatch.setenv("TF_CONFIG", _CLUSTER.replace('"chief"', '"ps"') % "ps")
    with pytest.raises(tfs.ClusterConfigError, match="ps 0, which takes no part"):
        tfs.CollectiveAllReduceStrategy()


def test_a_copied_strategy_is_the_same() -> None:
    strategy = tfs.CollectiveAllReduceStrategy()
    assert copy.deepcopy({"train": strategy})["train"] is strategy


def test_a_configured_strategy_is_no_collective_one_of_tensorflow_by_name() -> None:
    strategy = tfs.CollectiveAllReduceStrategy()
    strategy.configure(tf.compat.v1.ConfigProto())
    name = type(strategy).__name__
    assert name.startswith("CollectiveAllReduceStrategy") and name != "CollectiveAllReduceStrategy"
    assert isinstance(strategy, tfs.CollectiveAllReduceStrategy)
    kind = type(strategy)
    strategy.configure()
    assert type(strategy) is kind
    with strategy.scope():
        assert tf.distribute.get_strategy() is strategy


@pytest.mark.parametrize("error", [tf.errors.UnavailableError, tf.errors.AbortedError])
def test_final_errors_pass_a_monitored_session_and_come_out_as_they_were(error: type) -> None:
    class Losing(tf.compat.v1.Session):
        def run(self, *args, **kwargs):
            raise error(None, None, "worker 1 is lost")

    class Creator(tf.compat.v1.train.SessionCreator):
        created = 0

        def create_session(self) -> tf.compat.v1.Session:
            self.created += 1
            return with_final_errors(Losing())

    creator = Creator()
    with tf.Graph().as_default(), pytest.raises(error, match="worker 1 is lost"), carried_through():
        one = tf.constant(1)
        with tf.compat.v1.train.MonitoredSession(creator) as session:
            session.run(one)
    assert creator.created == 1


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(ValueError, match="mine"), carried_through(), final_errors():
        raise ValueError("mine")


def test_side_effects_in_a_session_come_in_program_order() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        count = tf.compat.v1.get_variable("count", initializer=0.0, use_resource=True)

        def step(values: list) -> list:
            before = count.read_value()
            count.assign_add(values[0], read_value=False)
            return [before, count.read_value()]

        before, after = in_program_order(step, [tf.constant(2.0)])
        session.run(count.initializer)
        assert session.run([before, after]) == [0, 2]
        assert session.run(before) == 2
        assert session.run(count) == 4


@needs_estimator
def test_the_train_op_goes_on_with_what_follows() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        first = tf.compat.v1.get_variable("first", initializer=1.0, use_resource=True)
        second = tf.compat.v1.get_variable("second", initializer=0.0, use_resource=True)
        spec = tf.estimator.EstimatorSpec("train", loss=tf.constant(1.0), train_op=first.assign(3.0))
        spec = followed_by(spec, lambda value: [value], lambda: [second.assign(first.read_value())])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(spec.train_op)
        assert session.run([first, second]) == [3, 3]


def test_a_session_has_the_devices_of_the_strategy() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])
    config = strategy.update_config_proto(tf.compat.v1.ConfigProto())
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        names = [device.name for device in session.list_devices()]
    assert set(strategy.extended.worker_devices) <= set(names)


def test_what_is_no_training_spec_stays_as_it_is() -> None:
    for result in (None, 3, (1, 2)):
        assert followed_by(result, list, lambda: 1 / 0) is result


def test_eager_work_while_a_graph_is_built() -> None:
    with tf.Graph().as_default():
        assert eagerly(lambda: int(tf.constant(2) + 1)) == 3
        with pytest.raises(ZeroDivisionError):
            eagerly(lambda: 1 / 0)


def test_each_session_graph_has_a_gradient_state_of_its_own() -> None:
    state = GradientState("/device:CPU:0")
    steps = []
    for _ in range(2):
        with tf.Graph().as_default() as graph:
            variable = tf.compat.v1.get_variable("kernel", [3], use_resource=True)
            slots = state.of(variable, ["residual"], adds_up=True)
            assert slots["residual"].graph is graph and state.step.graph is graph
            assert state.step is state.step
            assert state.of(variable, ["residual"], adds_up=True) is slots
            steps.append(state.step)
    assert steps[0] is not steps[1]
    assert int(state.step) == 0
