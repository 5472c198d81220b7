"""What Estimator makes of a strategy by the name of its class."""

from __future__ import annotations

from typing import Any

from tf_strategies.estimator.final_errors import ShowsFinalErrors

__all__ = ["adapt"]


class _OfEstimator:
    """A strategy that Estimator trains with."""

    def scope(self) -> ShowsFinalErrors:
        """As `tf.distribute.Strategy.scope`."""
        return ShowsFinalErrors(super().scope())


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
