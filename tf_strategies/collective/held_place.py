"""Knows whether functions hold the place of a worker in a group that can change."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.worker_group import Place

__all__ = ["HeldPlace", "is_thrown_away"]

_THROWN_AWAY = "scratch_graph"  # in which Keras 3 looks for the shapes of a model, before it trains


class PlaceInGraph(NamedTuple):
    """The place of a worker for functions that are traced, as tensors [] float64; see `Place`."""

    rank: tf.Tensor
    size: tf.Tensor


class HeldPlace:
    """Gives the rank and the size of a group to functions that are traced.

    A number of Python becomes a constant of a graph. A function that holds one must be traced again when the group has changed,
    unlike one that reads a variable in its place.

    Args:
        place: returns the present place.
        of_collectives: returns the place among the workers that take part in collectives, if that is another one.

    Attributes:
        is_held: whether a function has read the place while it was traced.
    """

    def __init__(
        self, place: Callable[[], Place], of_collectives: Optional[Callable[[], Place]] = None
    ) -> None:
        self._place, self._of_collectives = place, of_collectives or place
        self._variables: Optional[List[tf.Variable]] = None
        self.is_held = False

    def read(self) -> Place:
        """Returns the place. A function that is being traced holds it from now on."""
        if tf.inside_function() and not is_thrown_away(tf.compat.v1.get_default_graph()):
            self.is_held = True
        return self._place()

    def in_graph(self) -> Union[Place, PlaceInGraph]:
        """Returns the place among those that take part. In a function that is being traced it changes with the group."""
        if not tf.inside_function():
            return self._of_collectives()
        if self._variables is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._variables = [
                    compat.ResourceVariable(number, dtype=tf.float64, trainable=False, name="place_in_group")
                    for number in self._of_collectives()
                ]
        return PlaceInGraph(*(each.read_value() for each in self._variables))

    def change(self) -> None:
        """Gives the present place to the functions for which it changes."""
        for variable, number in zip(self._variables or (), self._of_collectives()):
            variable.assign(number)


def is_thrown_away(graph: tf.Graph) -> bool:
    """Returns True for a graph that no function uses."""
    return getattr(graph, "name", "").startswith(_THROWN_AWAY)
