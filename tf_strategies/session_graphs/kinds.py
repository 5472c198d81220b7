"""Makes Estimator recognize a strategy, which it does by the name of the class."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from tf_strategies.session_graphs.coordinator import carried_through

__all__ = ["adapt"]


class _OfEstimator:
    """A strategy that Estimator trains with."""

    @contextlib.contextmanager
    def scope(self) -> Iterator[Any]:
        """Does the same as `tf.distribute.Strategy.scope`."""
        with carried_through(), super().scope() as strategy:
            yield strategy


def adapt(strategy: Any) -> None:
    """Has Estimator and MonitoredTrainingSession train with the strategy as with any other, and show why its group ended.

    By the very name CollectiveAllReduceStrategy they know TensorFlow's own: then they let all workers write checkpoints, only the
    chief's to the right place, and refuse saving listeners. Hooks for early stopping look at how the name starts, and have all
    workers stop together.
    """
    kind = type(strategy)
    if not issubclass(kind, _OfEstimator):
        strategy.__class__ = type(
            f"{kind.__name__}OfEstimator", (_OfEstimator, kind), {"__doc__": kind.__doc__}
        )
