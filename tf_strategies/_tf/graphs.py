"""Functions, graphs and the order of their operations."""

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
    """Returns the global seed that random operations made now take; None if there is none. No public function reads it."""
    return private.global_seed() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().seed


def set_op_seed(seed):
    """Sets what `op_seed` returns, for this graph or all eager operations.

    tf.random.set_seed would also restart the numbers of operations, and does nothing for a graph that is being made.
    """
    if tf.executing_eagerly():
        private.context()._seed = seed
    else:
        tf.compat.v1.get_default_graph().seed = seed


def next_op_number():
    """Returns the number that the next eager random operation draws, without drawing it; 0 in graphs and before a seed is set."""
    drawn_from = getattr(private.context(), "_rng", None)
    if not tf.executing_eagerly() or drawn_from is None:
        return 0
    numbers = random.Random()
    numbers.setstate(drawn_from.getstate())
    return numbers.getrandbits(32)


@contextlib.contextmanager
def seeded_ops(seed):
    """Opens a context in which random operations have this global seed and, if eager, are numbered from it anew."""
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
    """Returns True if operations made now are to be compiled by XLA (jit_compile=True); TensorFlow shows it nowhere else."""
    return private.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def is_differentiating():
    """Returns True if a tf.GradientTape records what is computed now; no public function tells."""
    return private.could_possibly_record()


def written_resources(op):
    """Returns the handles among an operation's inputs that it writes to, also in functions that it calls.

    No public function returns them.
    """
    return list(private.get_read_write_resource_inputs(op)[1])


def is_branch_of(graph, outer):
    """Returns True if `graph` is `outer`, or a body of tf.cond or tf.while_loop within it.

    Such a body runs in each call of the function around it.

    The classes have no public name.
    """
    while graph is not outer:
        if not isinstance(graph, _CONTROL_FLOW_GRAPHS):
            return False
        graph = graph.outer_graph
    return True


def defined_function(name, build):
    """Returns the name of a function that is defined in the current graph, and the tensors it captures.

    The function has no arguments and no results.

    tf.function builds such a body twice, and calls it where it is used; here an operation has the function as an attribute.
    """
    graph = private.func_graph_from_py_func(private.unique_fn_name("", name), build, (), {})
    return private.create_new_tf_function(graph), graph.external_captures


@contextlib.contextmanager
def orderly_branches():
    """Opens a context in which branches run all operations that have side effects, in order.

    This is for branches in a graph that a session runs.

    In functions they do; in such graphs only what their results need, and there is no public switch.
    """
    graph = tf.compat.v1.get_default_graph()
    before, graph._add_control_dependencies = graph._add_control_dependencies, True
    try:
        yield
    finally:
        graph._add_control_dependencies = before


def run_before(op, others):
    """Has a session that runs the operation of its graph run others before, which were made later."""
    op._add_control_inputs(others)


def run_independently(op):
    """Has a function run the operation in each call, in no order with others that have side effects. Returns whether it can.

    A function runs stateful operations one after another, and this can be switched off only for TensorFlow's own. A graph that is
    no function, as those of Session, orders nothing and runs only what is asked for.
    """
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is None:
        return False
    manager.run_independently(op)
    return True
