"""Tests which functions hold the place of a worker, and which follow it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_strategies.collective.held_place import HeldPlace
from tf_strategies.collective.worker_group import Place

pytestmark = pytest.mark.any_line


class Group:
    place = Place(1, 3)


def test_a_function_that_reads_the_place_holds_it() -> None:
    held = HeldPlace(lambda: Group.place)
    assert held.read() == Place(1, 3)
    assert not held.is_held, "no function has read it"
    tf.function(lambda: held.read().size)()
    assert held.is_held


def test_keras_throws_away_the_graphs_in_which_it_looks_for_shapes() -> None:
    held = HeldPlace(lambda: Group.place)
    with tf.__internal__.FuncGraph("scratch_graph_3").as_default():
        held.read()
    assert not held.is_held


def test_a_function_follows_the_place_that_it_reads_in_its_graph() -> None:
    group: Any = Group()
    held = HeldPlace(lambda: group.place)
    function = tf.function(lambda: [*held.in_graph()])
    assert [float(each) for each in function()] == [1.0, 3.0]
    group.place = Place(0, 2)
    held.change()
    assert [float(each) for each in function()] == [0.0, 2.0]
    assert held.in_graph() == Place(0, 2), "outside of functions it is a pair of integers"
    assert function.experimental_get_tracing_count() == 1
    assert not held.is_held
