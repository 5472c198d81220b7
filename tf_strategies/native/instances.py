"""Numbers the collectives of one worker, so that they match those of the other workers."""

from __future__ import annotations

import collections
import threading
import weakref

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["InstanceNumbers", "outermost_graph", "replicas_run_here", "runs_beside_others"]

_GRAPH_INSTANCES = 1 << 15  # numbers below are those of graphs
_OF_REPLICAS = "tf_strategies_runs_replicas"
_BESIDE_OTHERS = "tf_strategies_runs_beside_others"


class InstanceNumbers:
    """Gives out numbers. All workers get the same ones. Thread-safe.

    Two collectives must not have one number while both are in flight. TensorFlow keeps a kernel, some 40 KB, for each number
    that was ever used. So numbers are used again:

    - Outside of graphs each name has one number, because only one collective is in flight there.
    - In a graph the collectives are numbered from its outermost function. A worker that traces a function once more than
      another keeps the same numbers.
    - A graph that runs on a thread of its own, beside another graph, numbers its collectives outside of the numbers of graphs.
      Those of one name have the same numbers, so only one of them may run at a time.
    - A function that a replica function calls is traced once and may be called from other graphs later. Its collectives have
      numbers from the last one down, by its name and its place among the functions of that name in the graph. So it gets the
      same numbers if one worker traces both again. A graph may call two functions that have the same numbers, or one function
      twice. Such calls run in the order of the program, because each writes one variable.

    Attributes:
        has_functions: whether graphs have numbers that depend on other graphs, as those of functions and of graphs beside others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()
        self._eager: dict[tuple[str, int], int] = {}
        self._next_eager = 0
        self._places: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()  # of functions
        self._functions: weakref.WeakKeyDictionary[tf.Graph, collections.Counter[str]] = (
            weakref.WeakKeyDictionary()
        )
        self._in_functions: dict[tuple[str, int, int, str, int], int] = {}
        self._first_in_functions = _GRAPH_INSTANCES
        self._calls: tf.Variable | None = None  # counts the calls of functions with collectives
        self.has_functions = False

    def next(self, name: str, count: int) -> int:
        """Returns the number of the next collective and reserves the count - 1 numbers after it.

        Args:
            name: the name of the collective.
            count: how many numbers it needs.

        Raises:
            RuntimeError: a graph has too many collectives.
        """
        if tf.executing_eagerly():
            with self._lock:
                return self._next_of_name(name, count)
        function, caller = _function_in_replica_function()
        if function is not None:
            self._order_calls()
        with self._lock:
            graph = outermost_graph()
            self.has_functions |= function is not None or hasattr(graph, _BESIDE_OTHERS)
            if function is not None:
                return self._next_of_function(function, caller, name, count)
            first = self._counts.get(graph, 0)
            self._counts[graph] = first + count
            if hasattr(graph, _BESIDE_OTHERS):
                return self._next_of_name(f"{getattr(graph, _BESIDE_OTHERS)} {first}", count)
            if first + count > self._first_in_functions:
                raise RuntimeError(
                    f"one graph has more than {self._first_in_functions} collectives; split it into several"
                )
            return first

    def _order_calls(self) -> None:
        """Makes calls of the function that is being built wait for one another: TensorFlow orders what writes a variable."""
        if self._calls is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._calls = compat.ResourceVariable(
                    0, dtype=tf.int64, trainable=False, name="calls_with_collectives"
                )
        self._calls.assign_add(1, read_value=False)

    def _next_of_name(self, name: str, count: int) -> int:
        if (name, count) not in self._eager:
            first = self._next_eager if self._next_eager + count <= _GRAPH_INSTANCES else 0
            self._eager[name, count] = first
            self._next_eager = first + count
        return _GRAPH_INSTANCES + self._eager[name, count]

    def _next_of_function(self, function: tf.Graph, caller: tf.Graph, name: str, count: int) -> int:
        if function not in self._places:
            functions = self._functions.setdefault(caller, collections.Counter())
            self._places[function] = functions[function.name]
            functions[function.name] += 1
        before = self._counts.get(function, 0)
        self._counts[function] = before + 1
        key = (function.name, self._places[function], before, name, count)
        if key not in self._in_functions:
            if self._first_in_functions - count < _GRAPH_INSTANCES // 2:
                raise RuntimeError(
                    f"functions that replica functions call have more than {_GRAPH_INSTANCES // 2} collectives; use fewer"
                )
            self._first_in_functions -= count
            self._in_functions[key] = self._first_in_functions
        return self._in_functions[key]


def replicas_run_here() -> None:
    """Marks the current graph as one that replica functions run in."""
    if not tf.executing_eagerly():
        setattr(tf.compat.v1.get_default_graph(), _OF_REPLICAS, True)


def runs_beside_others(name: str) -> None:
    """Marks the current graph, of an outermost function, as one that runs while another graph with collectives does.

    Args:
        name: the name of the graphs of which one runs at a time. It may differ between workers. No other collective has it.
    """
    setattr(tf.compat.v1.get_default_graph(), _BESIDE_OTHERS, name)


def _function_in_replica_function() -> tuple[tf.Graph | None, tf.Graph | None]:
    """Returns the graph of the function that is being built and that a replica function calls, and the graph of the latter.

    Returns (None, None) if there is no such function.
    """
    graph, function = tf.compat.v1.get_default_graph(), None
    while graph is not None and not hasattr(graph, _OF_REPLICAS):
        if not compat.is_branch(graph):
            function = graph
        graph = getattr(graph, "outer_graph", None)
    return (None, None) if graph is None or function is None else (function, graph)


def outermost_graph() -> tf.Graph:
    """Returns the graph that is run in the end: that of the outermost tf.function, or the one a Session runs."""
    with tf.init_scope():
        if not tf.executing_eagerly():
            return tf.compat.v1.get_default_graph()
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph
