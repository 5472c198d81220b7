"""`AsyncParameterServerStrategy`: each worker pulls, computes and pushes at its own pace."""

from __future__ import annotations

import math
import numbers
from typing import Any, Optional

from tf_strategies.cluster import Cluster
from tf_strategies.compression import Compressor
from tf_strategies.errors import OptionsError
from tf_strategies.keras.shared_progress import Pace
from tf_strategies.options import ParameterServerOptions, whole_number
from tf_strategies.parameter_server.strategy import ParameterServerStrategy
from tf_strategies.parameter_server.updates.asynchronous import AsynchronousUpdates
from tf_strategies.parameter_server.updates.damping import Compensation, Damping, Division
from tf_strategies.parameter_server.updates.staleness import StalenessStats

__all__ = ["AsyncParameterServerStrategy"]

DAMPINGS = ("divide", "compensate")
DEFAULT_COMPENSATION = 0.04


class AsyncParameterServerStrategy(ParameterServerStrategy):
    """Asynchronous SGD on parameter servers (Dean et al. 2012, "Large scale distributed deep networks", Downpour SGD).

    Variables and the optimizer's slots live on the `ps` tasks of TF_CONFIG. Chief and workers run the same script; each reads the
    variables, computes gradients on its own share of the data, and has them applied where the variables are, without
    waiting for anybody. Batch sizes are those of one worker, and a dataset's batches are dealt out to the workers in turn;
    `evaluate` and `predict` see all of the data on every worker. In a `ps` process making the strategy serves, and ends the
    process when all workers are done. Without TF_CONFIG all is in this process.

    Args:
        max_staleness: how many steps a worker may be ahead of the slowest that is in `fit`, after which it waits (stale
            synchronous parallel, Ho et al. 2013); None: any number.
        damping: what happens to stale gradients: None, or "divide": by their staleness where it is above 1 (Zhang et al. 2016,
            "Staleness-aware async-SGD"; with plain SGD the same as dividing the learning rate, with Adam and its like of no use);
            or "compensate": corrected to first order for what others have changed (Zheng et al. 2017, "Asynchronous SGD
            with delay compensation", arXiv:1609.08326, equation 10). Servers keep what a worker has read until its update.
        compensation: the strength of "compensate", the paper's lambda, from 0; when None 0.04, where the paper begins.
        compression: one of `tfs.compression`, which makes gradients smaller on their way to the servers, the same on all workers.
            What is not sent is remembered by each worker, and lost with it.
        options: placement of variables, timeout.
        cluster: the tasks, in place of what TF_CONFIG says.

    Raises:
        ClusterConfigError: TF_CONFIG is wrong, or names no `ps`.
        OptionsError: an argument has a value it cannot have.
        BootstrapError: a server did not answer in time, or workers disagree on arguments.
    """

    def __init__(
        self,
        *,
        max_staleness: Optional[int] = None,
        damping: Optional[str] = None,
        compensation: Optional[float] = None,
        compression: Optional[Compressor] = None,
        options: Optional[ParameterServerOptions] = None,
        cluster: Optional[Cluster] = None,
    ) -> None:
        max_staleness = _staleness(max_staleness)
        rule = _damping(damping, compensation)
        super().__init__(
            "AsyncParameterServerStrategy",
            lambda servers, compressed: AsynchronousUpdates(
                servers.membership, max_staleness=max_staleness, damping=rule, compressed=compressed
            ),
            Pace.OWN,
            f"max_staleness={max_staleness}, damping={damping}, compensation={compensation}",
            compression,
            options,
            cluster,
        )

    def _begin_training(self) -> None:
        # From now on others wait for it, if they wait at all.
        self._servers.call(self._servers.membership.pull, None)

    def staleness_stats(self) -> StalenessStats:
        """Returns the staleness of the gradients that all workers have applied so far."""
        return self._servers.call(StalenessStats.from_ledger, self._servers.membership)


def _damping(damping: Any, compensation: Any) -> Optional[Damping]:
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


def _staleness(value: Any) -> Optional[int]:
    if value is None:
        return None
    number = whole_number(value)
    if number is None or number < 0:
        raise OptionsError(f"max_staleness must be None or a whole number of steps from 0; got {value!r}")
    return number
