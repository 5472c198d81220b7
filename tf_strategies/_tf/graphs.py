"""Inspects functions and graphs, and orders their operations."""

from __future__ import annotations

import contextlib
import random

import tensorflow as tf

from tf_strategies._tf.private_names import private

__all__ = [
    "CancellationManager",
    "CancellationManagerContext",
    "Function",
    "coordinator_context",
    "defined_function",
    "in_xla",
    "is_branch",
    "is_branch_of",
    "is_differentiating",
    "is_saving",
    "next_op_number",
    "op_seed",
    "orderly_branches",
    "register_dispatchable_type",
    "run_before",
    "run_independently",
    "seeded_ops",
    "set_op_seed",
    "written_resources",
]

CancellationManager = private.CancellationManager
CancellationManagerContext = private.CancellationManagerContext
Function = private.Function
coordinator_context = private.get_current_worker_context
is_saving = private.in_save_context
register_dispatchable_type = private.register_dispatchable_type
_CONTROL_FLOW_GRAPHS = (
    private.CondBranchFuncGraph,
    private.WhileCondFuncGraph,
    private.WhileBodyFuncGraph,
)


def op_seed():
    """Returns the current global seed of random operations, or None. No public function returns it."""
    return private.global_seed() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().seed


def set_op_seed(seed):
    """Sets the global seed of random operations, for this graph or for all eager operations.

    tf.random.set_seed would also restart the numbering of operations, and has no effect on a graph that is
    being built.
    """
    if tf.executing_eagerly():
        private.context()._seed = seed
    else:
        tf.compat.v1.get_default_graph().seed = seed


def next_op_number():
    """Returns the number of the next eager random operation without using it up; 0 in graphs and before a seed is set."""
    drawn_from = getattr(private.context(), "_rng", None)
    if not tf.executing_eagerly() or drawn_from is None:
        return 0
    numbers = random.Random()
    numbers.setstate(drawn_from.getstate())
    return numbers.getrandbits(32)


def eager_random_state():
    """Returns a function that makes eager random operations draw again what they draw from now on."""
    context = private.context()
    seed, numbers = context._seed, getattr(context, "_rng", None)
    state = None if numbers is None else numbers.getstate()

    def draw_again():
        context._seed = seed
        context._rng = None if state is None else random.Random()
        if state is not None:
            context._rng.setstate(state)

    return draw_again


@contextlib.contextmanager
def seeded_ops(seed):
    """Opens a context in which random operations use this global seed.

    Eager operations restart their numbering.
    """
    before, numbers = op_seed(), getattr(private.context(), "_rng", None)
    set_op_seed(seed)
    if tf.executing_eagerly():
        private.context()._rng = random.Random(seed)
    try:
        yield
    finally:
        set_op_seed(before)
        private.context()._rng = numbers


def in_xla():
    """Returns True if XLA will compile the operations made now (jit_compile=True).

    No public function tells this.
    """
    return private.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def is_differentiating():
    """Returns True if a tf.GradientTape is recording. No public function tells this."""
    return private.could_possibly_record()


def written_resources(op):
    """Returns the handles among an operation's inputs whose resources it writes, also in functions that it calls.

    No public function returns them.
    """
    return list(private.get_read_write_resource_inputs(op)[1])


def is_branch(graph):
    """Returns True if `graph` is the body of a tf.cond or tf.while_loop. The classes have no public name."""
    return isinstance(graph, _CONTROL_FLOW_GRAPHS)


def is_branch_of(graph, outer):
    """Returns True if `graph` is `outer`, or the body of a tf.cond or tf.while_loop within it.

    Such a body is part of the function around it.
    """
    while graph is not outer:
        if not is_branch(graph):
            return False
        graph = graph.outer_graph
    return True


def defined_function(name, build):
    """Defines a function in the current graph. Returns its name and the tensors that it captures.

    The function has no arguments and no results.

    tf.function would trace the body twice, and call it. Here an operation takes the function as an attribute.
    """
    graph = private.func_graph_from_py_func(private.unique_fn_name("", name), build, (), {})
    return private.create_new_tf_function(graph), graph.external_captures


@contextlib.contextmanager
def orderly_branches():
    """Opens a context in which branches run all their operations with side effects, in order.

    It is for graphs that a session runs.

    In functions, branches always do so. In graphs of sessions they run only the operations that their results
    need, and there is no public switch.
    """
    graph = tf.compat.v1.get_default_graph()
    before, graph._add_control_dependencies = graph._add_control_dependencies, True
    try:
        yield
    finally:
        graph._add_control_dependencies = before


def run_before(op, others):
    """Makes an operation of a session's graph wait for other operations that were built later."""
    op._add_control_inputs(others)


def run_independently(op):
    """Lets a function run the operation in each call, in any order. Returns False if this is not possible.

    A function runs stateful operations in order, and only TensorFlow's own operations can be excluded from
    that. A graph that is not a function, such as one of a session, orders nothing and runs only the
    operations that are fetched.
    """
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is None:
        return False
    manager.run_independently(op)
    return True
