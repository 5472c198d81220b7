"""Tests the numbers of collectives in functions that a replica function calls."""

from __future__ import annotations

from typing import Any, List

import pytest
import tensorflow as tf

from tf_strategies.native.instances import InstanceNumbers, replicas_run_here, runs_beside_others

pytestmark = pytest.mark.any_line


def _function(numbers: InstanceNumbers, found: List[int]) -> Any:
    return tf.function(lambda x: (found.append(numbers.next("sum", 1)), x)[1])


def _step(numbers: InstanceNumbers, found: List[int], functions: List[Any]) -> Any:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        replicas_run_here()
        for each in functions:
            x = each(x)
        found.append(numbers.next("sum", 1))
        return x

    return step


def test_functions_of_one_name_have_numbers_of_their_own_and_the_same_when_all_are_traced_again() -> None:
    numbers = InstanceNumbers()
    traces: List[List[int]] = [[], []]
    for found in traces:
        functions = [_function(numbers, found) for _ in range(2)]
        _step(numbers, found, functions)(tf.ones([]))
    assert len(set(traces[0])) == 3
    assert traces[0] == traces[1]


def test_a_function_that_was_traced_before_shares_no_number_with_the_step_that_calls_it() -> None:
    numbers, found = InstanceNumbers(), []
    function = _function(numbers, found)
    _step(numbers, [], [function])(tf.ones([]))
    later: List[int] = []
    _step(numbers, later, [function])(tf.ones([]))
    assert len(found) == 1, "it was traced once"
    assert not set(found) & set(later)


def test_a_graph_that_runs_beside_others_shares_no_number_with_them() -> None:
    numbers = InstanceNumbers()

    def of_graph(beside: str) -> List[int]:
        found: List[int] = []

        @tf.function
        def function() -> None:
            if beside:
                runs_beside_others(beside)
            found.extend([numbers.next("sum", 1), numbers.next("rows", 2)])

        function()
        return found

    eager = numbers.next("sum", 1)
    first, second, of_another = of_graph("a"), of_graph("a"), of_graph("b")
    other = of_graph("")
    assert first == second
    taken = [number for found in (first, of_another, other) for number in (*found, found[1] + 1)]
    assert len({eager, *taken}) == 10
