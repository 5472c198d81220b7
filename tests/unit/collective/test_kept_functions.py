"""Tests which functions a worker can use again when its group has changed."""

from __future__ import annotations

import gc
from typing import Any, Callable, List

import pytest
import tensorflow as tf

from tf_strategies.collective.kept_functions import KeptFunctions
from tf_strategies.collective.worker_group import Place

pytestmark = pytest.mark.any_line


class Group:
    """Traces functions that have collectives of some names and layouts, at a place that can change."""

    def __init__(self, size: int) -> None:
        self.place = Place(0, size)
        self.functions = KeptFunctions(lambda: self.place, lambda: self.place)
        self.functions.begin()

    def traced(self, *collectives: str, reads: bool = False) -> Callable[[], Any]:
        def function() -> tf.Tensor:
            for each in collectives:
                name, _, layout = each.partition(":")
                tf.function(lambda: self.functions.collectives.add(name, lambda: layout))()
            return tf.constant(self.functions.place.read().size if reads else 0)

        made = tf.function(function)
        made()
        return made


def test_functions_suit_as_many_workers_as_they_are_made_for() -> None:
    group = Group(3)
    function = group.traced("gradients:float32[3]")
    found = group.functions.suiting(has_newcomers=True)
    assert len(found) == 1
    for size, suits in [(1, True), (2, True), (3, True), (4, False)]:
        group.place = Place(0, size)
        assert group.functions.suiting(has_newcomers=True) == (found if suits else None)
        assert group.functions.made_for() == Place(0, max(size, 3)), "also when fewer are left"
    group.functions.forget()
    group.functions.begin()
    assert group.functions.suiting(has_newcomers=True) == []
    group.place = Place(0, 2)
    group.functions.forget()
    group.functions.begin()
    assert group.functions.made_for() == Place(0, 4), "as many as there were"
    assert function is not None


def test_a_function_that_holds_the_place_suits_no_other_group() -> None:
    group = Group(2)
    assert group.traced("gradients:", reads=True) is not None
    assert group.functions.suiting(has_newcomers=True) is None


def test_workers_compare_the_collectives_of_each_living_function() -> None:
    """By name without digits and by layout, in the order of the outermost function."""

    def suiting(*functions: List[str]) -> List[str]:
        group = Group(2)
        made = [group.traced(*each) for each in functions]
        found = group.functions.suiting(has_newcomers=True)
        assert made and found is not None
        return found

    train, test = ["gradients of dense_1:float32", "rows:"], ["rows:"]
    assert suiting(train, test) == suiting(test, ["gradients of dense_7:float32", "rows:"], test)
    assert suiting(train) != suiting(train[::-1])
    assert suiting(train) != suiting(["gradients of dense_1:float16", "rows:"])
    assert set(suiting(test)) < set(suiting(train, test))

    group = Group(2)
    function = group.traced(*train)
    assert len(group.functions.suiting(has_newcomers=True)) == 1
    del function
    gc.collect()
    assert group.functions.suiting(has_newcomers=True) == [], "a function that is gone is not compared"


def test_functions_have_the_ids_of_former_communicators() -> None:
    group = Group(2)
    group.functions.add_former(7, has_functions=False)
    group.functions.add_former(8, has_functions=False)
    assert group.functions.suiting(has_newcomers=True) == []
    assert group.functions.change() == [7, 8]
    group.functions.add_former(9, has_functions=True)
    group.functions.add_former(10, has_functions=False)
    assert group.functions.suiting(has_newcomers=False) == []
    assert group.functions.suiting(has_newcomers=True) is None, "it has other numbers"
    group.functions.forget()
    assert group.functions.suiting(has_newcomers=True) == []
    assert group.functions.change() == []
