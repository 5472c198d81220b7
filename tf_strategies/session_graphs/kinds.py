"""Makes Estimator recognize our strategies by the names of their classes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Iterator

from tf_strategies.session_graphs.coordinator import Coordinated, carried_through

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["adapt"]


class _OfEstimator:
    """A strategy that Estimator can train with."""

    @contextlib.contextmanager
    def scope(self) -> Iterator[tf.distribute.Strategy]:
        """Does the same as `tf.distribute.Strategy.scope`."""
        with carried_through(), super().scope() as strategy:  # type: ignore[misc]  # of the other base
            yield strategy


def adapt(strategy: Coordinated) -> None:
    """Lets Estimator and MonitoredTrainingSession train with the strategy, and report why its group ended.

    They compare class names. A class that is named exactly CollectiveAllReduceStrategy counts as TensorFlow's
    own: all workers then write checkpoints, and saving listeners are refused. Hooks for early stopping check
    only the beginning of the name, and then stop all workers together.
    """
    kind = type(strategy)
    if not issubclass(kind, _OfEstimator):
        strategy.__class__ = type(
            f"{kind.__name__}OfEstimator", (_OfEstimator, kind), {"__doc__": kind.__doc__}
        )
