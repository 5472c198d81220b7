"""Finds the owner of a variable: an optimizer, one replica, or a layer.

In a step, each replica writes some variables by itself. Variables of layers are statistics, on which all
replicas must agree. An optimizer writes the same values on every replica. The states of a stateful recurrent
layer belong to the rows of one replica, and so do the states of random generators in Keras 2.
"""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any, Callable, Iterator, List

import tensorflow as tf

from tf_strategies.keras.types import Layer, Optimizer, Variable

__all__ = [
    "belongs_to_optimizer",
    "belongs_to_replica",
    "give_to_replica",
    "init_optimizer",
    "mark_states",
    "uncast",
    "variables_of_optimizer",
]

_MARK = "_tf_strategies_owner"
_optimizers: List[weakref.ref[Optimizer]] = []


def belongs_to_optimizer(variable: tf.Variable) -> bool:
    """Returns True if the variable belongs to an optimizer of this process, also through a loss scale."""
    if _MARK not in vars(variable):
        for reference in list(_optimizers):
            optimizer = reference()
            if optimizer is None:
                _optimizers.remove(reference)
                continue
            for owned in variables_of_optimizer(optimizer):
                if not belongs_to_replica(_held(owned)):
                    vars(_held(owned))[_MARK] = "optimizer"
        vars(variable).setdefault(_MARK, "layer")
    return bool(vars(variable)[_MARK] == "optimizer")


def belongs_to_replica(variable: tf.Variable) -> bool:
    """Returns True if the variable holds a state of the rows of one replica."""
    return bool(vars(variable).get(_MARK) == "replica")


def give_to_replica(variable: Variable) -> None:
    """Records that a variable, of Keras or TensorFlow, holds a state of one replica."""
    vars(_held(variable))[_MARK] = "replica"


def variables_of_optimizer(optimizer: Optimizer) -> Iterator[Variable]:
    """Yields all variables of an optimizer, some of them more than once.

    Accumulated gradients belong to each replica until they are applied, because they are added up only then.
    """
    for accumulated in getattr(optimizer, "_accumulated_gradients", ()):
        give_to_replica(accumulated)
    listed = optimizer.variables
    yield from listed() if callable(listed) else listed
    for part in tf.train.TrackableView(optimizer).descendants():
        if isinstance(part, tf.Variable):
            yield part


def uncast(variable: tf.Variable) -> tf.Variable:
    """Returns the variable that a variable of Keras 2 casts when it is read, or the variable itself."""
    return vars(variable).get("_variable", variable)


def init_optimizer(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the constructor of an optimizer, changed to record the optimizer."""
    del keras

    @functools.wraps(original)
    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _optimizers.append(weakref.ref(self))

    return init


def mark_states(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method that makes the states of a recurrent layer, changed to record that they belong to one replica."""
    del keras

    @functools.wraps(original)
    def create_state_variables(self: Layer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for state in tf.nest.flatten(self.states):
            give_to_replica(state)

    return create_state_variables


def _held(variable: Variable) -> tf.Variable:
    """Returns the TensorFlow variable of a Keras variable."""
    held = variable if isinstance(variable, tf.Variable) else variable._value
    return uncast(held)
