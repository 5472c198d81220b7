"""In elastic training, optimizers add to large variables out of place, with the same bits as in place."""

from __future__ import annotations

from typing import Iterator, List

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.processes import ReservedPorts, tf_config  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras

_WIDTH = 160  # a kernel of 25,600 elements is large, and one of 1,600 is not
_ADDITIONS = ("AssignAddVariableOp", "AssignSubVariableOp")


@pytest.fixture(scope="module")
def elastic() -> Iterator[tfs.CollectiveAllReduceStrategy]:
    with ReservedPorts(1) as ports, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", tf_config({"worker": [f"127.0.0.1:{ports.ports[0]}"]}, "worker", 0))
        strategy = tfs.CollectiveAllReduceStrategy(
            elastic=tfs.Elastic(max_workers=2), devices=["CPU:0", "CPU:1"]
        )
    yield strategy
    strategy.close()


class Training:
    """Applies gradients to one large weight and a small one.

    Args:
        strategy: the strategy.
        optimizer: the name of the optimizer.
    """

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: str) -> None:
        shapes = [_WIDTH, _WIDTH], [10]
        with strategy.scope():
            self.weights = [tf.Variable(tf.ones(shape)) for shape in shapes]
            self.optimizer = getattr(keras.optimizers, optimizer)(0.01)
            self.optimizer.build(self.weights)
        gradients = [tf.random.stateless_normal(shape, [1, 2]) for shape in shapes]

        @tf.function
        def step():
            strategy.run(lambda: self.optimizer.apply_gradients(zip(gradients, self.weights)))

        self.step = step

    def values(self) -> List[np.ndarray]:
        slots = self.optimizer.variables
        slots = slots() if callable(slots) else [getattr(each, "value", each) for each in slots]
        return [part.numpy() for each in [*self.weights, *slots] for part in getattr(each, "values", [each])]

    def added_shapes(self) -> List[tf.TensorShape]:
        """The shapes of what a step adds in place."""
        to_see, found = [self.step.get_concrete_function().graph], []
        while to_see:
            graph = to_see.pop()
            found += [op.inputs[1].shape for op in graph.get_operations() if op.type in _ADDITIONS]
            to_see += [each.graph for each in graph._functions.values() if hasattr(each, "graph")]
        return found


@pytest.mark.parametrize("optimizer", ["Adam", "Ftrl"])
def test_only_large_variables_are_added_to_out_of_place_with_the_same_bits(
    optimizer: str, strategy, elastic
) -> None:
    trainings = [Training(each, optimizer) for each in (strategy, elastic)]
    for training in trainings:
        for _ in range(3):
            training.step()
    wanted, found = (each.values() for each in trainings)
    assert all(np.array_equal(*pair) for pair in zip(wanted, found))
    assert not np.all(found[0] == 1)
    in_place, out_of_place = (each.added_shapes() for each in trainings)
    assert [_WIDTH, _WIDTH] in in_place
    assert [shape for shape in in_place if shape != [_WIDTH, _WIDTH]] == out_of_place


def test_a_value_that_was_read_stays(elastic) -> None:
    with elastic.scope():
        variable = tf.Variable(tf.ones([_WIDTH, _WIDTH]))
    held = variable.values[0].read_value()
    for change, wanted in (("assign_add", 3.0), ("assign_sub", 1.0)):
        for _ in range(2):
            elastic.extended.update(
                variable, lambda part, by, how=change: getattr(part, how)(by), args=(tf.ones_like(held),)
            )
        assert all(np.all(part.numpy() == wanted) for part in variable.values)
    assert np.all(held.numpy() == 1.0)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        variable.values[0].assign_add(tf.ones([_WIDTH]))


def test_what_is_no_weight_and_no_slot_is_added_to_in_place(elastic) -> None:
    with elastic.scope():
        queue = tf.Variable(tf.ones([_WIDTH, _WIDTH]), trainable=False)
    operations = tf.function(lambda: queue.values[0].assign_add(tf.ones_like(queue.values[0])))
    assert "AssignAddVariableOp" in {
        op.type for op in operations.get_concrete_function().graph.get_operations()
    }
