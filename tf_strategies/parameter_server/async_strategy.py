"""`AsyncParameterServerStrategy`: asynchronous SGD, in which each worker pulls, computes and pushes at its own pace."""

from __future__ import annotations

import math
import numbers
from typing import Optional

from tf_strategies.compression import Compressor
from tf_strategies.errors import OptionsError
from tf_strategies.keras.shared_progress import Pace
from tf_strategies.options import ParameterServerOptions, whole_number
from tf_strategies.parameter_server.strategy import ParameterServerStrategy
from tf_strategies.parameter_server.updates.asynchronous import AsynchronousUpdates
from tf_strategies.parameter_server.updates.damping import Compensation, Damping, Division
from tf_strategies.parameter_server.updates.staleness import StalenessStats
from tf_strategies.resolvers import ClusterOrResolver
from tf_strategies.types import Unchecked

__all__ = ["AsyncParameterServerStrategy"]

DAMPINGS = ("divide", "compensate")
DEFAULT_COMPENSATION = 0.04


class AsyncParameterServerStrategy(ParameterServerStrategy):
    """Trains asynchronously on parameter servers.

    Variables and the slots of the optimizer live on the `ps` tasks of TF_CONFIG. The chief and the workers run the same script.
    Each worker reads the variables, computes gradients on its own share of the data, and the servers apply them at once. No
    worker waits for another.

    Batch sizes are those of one worker. The batches of a dataset are dealt out to the workers in turn. `evaluate` and `predict`
    see all data on each worker. In a `ps` process, the constructor serves until all workers are done, and then ends the
    process. Without TF_CONFIG everything is in this process.

    Args:
        max_staleness: how many steps a worker may be ahead of the slowest worker in `fit`. A worker that is further ahead waits
            (stale synchronous parallel). None: there is no limit.
        damping: how stale gradients are corrected. None: not at all. "divide": a gradient is divided by its staleness if that
            is above 1. With plain SGD this divides the learning rate; with Adam it has no effect. "compensate": a first-order
            correction for the updates of other workers (DC-ASGD). Servers then keep the values that a worker has read until
            its update arrives.
        compensation: the strength of "compensate", lambda in the paper; 0 or more. None means 0.04, the paper's first value.
        compression: one of `tfs.compression`, which reduces the bytes that are sent to the servers; the same on all workers.
            Each worker keeps what it has not sent yet. It is lost if the worker ends.
        replicas: in how many places variables are held, 1 or 2. With 2 the next server has a copy of the variables of each, which
            is made every 0.7 seconds. `fit` goes on when a lost server has started again.
        options: the placement of variables, the transport and the timeout.
        cluster: the tasks, instead of those of TF_CONFIG: a `tfs.Cluster` or a `tf.distribute` cluster resolver.

    Raises:
        ClusterConfigError: TF_CONFIG or `cluster` is wrong, or names no `ps`.
        OptionsError: an argument has a value that is not allowed.
        BootstrapError: a server did not answer within the timeout, or the workers use different arguments.

    References:
        Dean et al. 2012, "Large scale distributed deep networks" (Downpour SGD).
        Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server", section 3.
        Zhang et al. 2016, "Staleness-aware async-SGD for distributed deep learning".
        Zheng et al. 2017, "Asynchronous SGD with delay compensation", arXiv:1609.08326, equation 10.

    Example:
        >>> strategy = tfs.AsyncParameterServerStrategy(max_staleness=4)
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        >>> history = model.fit(dataset, epochs=2, verbose=0)
    """

    def __init__(
        self,
        *,
        max_staleness: Optional[int] = None,
        damping: Optional[str] = None,
        compensation: Optional[float] = None,
        compression: Optional[Compressor] = None,
        replicas: int = 1,
        options: Optional[ParameterServerOptions] = None,
        cluster: Optional[ClusterOrResolver] = None,
    ) -> None:
        max_staleness = _staleness(max_staleness)
        rule = _damping(damping, compensation)
        super().__init__(
            "AsyncParameterServerStrategy",
            lambda servers, compressed: AsynchronousUpdates(
                servers.membership, max_staleness=max_staleness, damping=rule, compressed=compressed
            ),
            Pace.OWN,
            f"max_staleness={max_staleness}, damping={damping}, compensation={compensation}, replicas={replicas}",
            compression,
            options,
            cluster,
            replicas,
        )

    def _begin_training(self) -> None:
        # From now on, other workers may wait for this one.
        self._servers.call(self._servers.membership.pull, None)

    def staleness_stats(self) -> StalenessStats:
        """Returns the staleness of the gradients that all workers have applied so far."""
        stats: StalenessStats = self._servers.call(StalenessStats.from_ledger, self._servers.membership)
        return stats


def _damping(damping: Unchecked, compensation: Unchecked) -> Optional[Damping]:
    if damping is not None and (not isinstance(damping, str) or damping not in DAMPINGS):
        raise OptionsError(
            f"damping must be None or one of {', '.join(map(repr, DAMPINGS))}; got {damping!r}"
        )
    if damping != "compensate":
        if compensation is not None:
            raise OptionsError(f'compensation goes with damping="compensate" only; got {compensation!r}')
        return None if damping is None else Division()
    strength = DEFAULT_COMPENSATION if compensation is None else compensation
    real = isinstance(strength, numbers.Real) and not isinstance(strength, bool)
    if not real or not math.isfinite(strength) or strength < 0:
        raise OptionsError(f"compensation must be a finite number from 0; got {compensation!r}")
    return Compensation(float(strength))


def _staleness(value: Unchecked) -> Optional[int]:
    if value is None:
        return None
    number = whole_number(value)
    if number is None or number < 0:
        raise OptionsError(f"max_staleness must be None or a whole number of steps from 0; got {value!r}")
    return number
