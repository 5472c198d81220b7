"""`SyncReplicasStrategy`: synchronous SGD on parameter servers, with backup workers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import Iterator, Optional, Sequence, Tuple

from tf_strategies.compression import Compressor
from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_types import Callback
from tf_strategies.keras.shared_progress import Pace
from tf_strategies.options import ParameterServerOptions, whole_number
from tf_strategies.parameter_server.strategy import ParameterServerStrategy
from tf_strategies.parameter_server.updates.last_step import LastStep
from tf_strategies.parameter_server.updates.synchronous import SynchronousUpdates
from tf_strategies.resolvers import ClusterOrResolver, cluster_and_resolver
from tf_strategies.types import Unchecked

__all__ = ["GradientCounts", "SyncReplicasStrategy"]


@dataclasses.dataclass(frozen=True)
class GradientCounts:
    """Counts the gradients of each worker that were applied, and those that were dropped.

    Attributes:
        counted: [workers], the numbers of gradients that were averaged and applied, by rank.
        dropped: [workers], the numbers of gradients that were too late for their step, by rank.
    """

    counted: Tuple[int, ...]
    dropped: Tuple[int, ...]


class SyncReplicasStrategy(ParameterServerStrategy):
    """Trains synchronously on parameter servers, with backup workers.

    Variables, servers and data are those of `AsyncParameterServerStrategy`, but gradients are averaged before they are
    applied. A step takes the first `replicas_to_aggregate` gradients. Gradients that come later are dropped, and their workers
    continue with the next step.

    Batch sizes are global: each worker takes its share of every batch. Without backup workers, N workers train as one process
    does. The others do not wait for a worker that ended, was lost, or has no more data. With backup workers, `fit` ends on all
    workers when the servers have applied as many steps as there are batches, even if a slow worker has batches left.

    Args:
        replicas_to_aggregate: the number of gradients in a step, from 1 to the number of workers. The default
            is the number of workers minus the backup workers.
        backup_workers: the number of slowest workers that a step does not wait for.
        compression: one of `tfs.compression`, which reduces the bytes that are sent to the servers; the same on all workers.
            Each worker keeps what it has not sent yet. It is lost if the worker ends. Dropped gradients are not sent again.
        replicas: in how many places variables are held, 1 or 2. With 2 each server has a copy on the next one, made between two
            steps, about every 0.7 seconds. When a server is lost and has started again, all servers go back to the copy, and
            the workers repeat the steps since: `fit` ends as if no server had been lost. It needs all workers in each step, no
            compression and `steps_per_execution=1`.
        options: the placement of variables, the transport and the timeout.
        cluster: the tasks, instead of those of TF_CONFIG: a `tfs.Cluster` or a `tf.distribute` cluster resolver.

    Raises:
        ClusterConfigError: TF_CONFIG or `cluster` is wrong, or names no `ps`.
        OptionsError: an argument has a value that is not allowed.
        BootstrapError: a server did not answer within the timeout, or the workers use different arguments.

    References:
        Chen et al. 2016, "Revisiting distributed synchronous SGD", arXiv:1604.00981.

    Example:
        >>> strategy = tfs.SyncReplicasStrategy(backup_workers=0)
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        ...     model.compile("adam", "mse")
        >>> history = model.fit(dataset, epochs=2, verbose=0)
    """

    def __init__(
        self,
        replicas_to_aggregate: Optional[int] = None,
        *,
        backup_workers: int = 0,
        compression: Optional[Compressor] = None,
        replicas: int = 1,
        options: Optional[ParameterServerOptions] = None,
        cluster: Optional[ClusterOrResolver] = None,
    ) -> None:
        found, _ = cluster_and_resolver(cluster)
        workers = 1 if found is None or found.task.role == "evaluator" else found.size
        quorum = _quorum(replicas_to_aggregate, backup_workers, workers)
        if replicas == 2 and quorum < workers:
            raise OptionsError(
                "replicas=2 needs steps in which all workers take part: leave backup_workers and replicas_to_aggregate out, or "
                "replicas"
            )
        if replicas == 2 and compression is not None:
            raise OptionsError(
                "replicas=2 does not work with compression, whose residuals would be added twice when steps are repeated; leave "
                "one of them out"
            )
        super().__init__(
            "SyncReplicasStrategy",
            lambda servers, compressed: SynchronousUpdates(
                servers.membership, quorum=quorum, compressed=compressed
            ),
            Pace.IN_STEP if quorum == workers else Pace.SHARED,
            f"replicas_to_aggregate={quorum}, replicas={replicas}",
            compression,
            options,
            cluster,
            replicas,
        )
        self._fits = itertools.count(1)

    def gradient_counts(self) -> GradientCounts:
        """Returns the numbers of applied and dropped gradients of each worker so far."""
        found = self._servers.call(self._servers.membership.counts)
        return GradientCounts(tuple(map(int, found.counted)), tuple(map(int, found.dropped)))

    def own_callbacks(self) -> Sequence[Callback]:
        if self._pace is Pace.IN_STEP:
            return super().own_callbacks()
        return [*super().own_callbacks(), LastStep(lambda: self._servers.call(self._servers.membership.step))]

    @contextlib.contextmanager
    def training_on_batch(self) -> Iterator[None]:
        if self._takes_part:  # in a callback of `fit`
            yield
            return
        # A worker would not wait for those that have left a `fit`.
        with self._servers.detecting_failures(), self.extended.distributor.fitting(), self._taking_part():
            yield

    def _begin_training(self) -> None:
        self._servers.call(self._servers.membership.enter, next(self._fits))


def _quorum(replicas_to_aggregate: Unchecked, backup_workers: Unchecked, workers: int) -> int:
    backups = whole_number(backup_workers)
    if backups is None or not 0 <= backups < workers:
        raise OptionsError(
            f"backup_workers must be a whole number from 0 to {workers - 1}, one less than the workers; got {backup_workers!r}"
        )
    if replicas_to_aggregate is None:
        return workers - backups
    quorum = whole_number(replicas_to_aggregate)
    if quorum is None or not 1 <= quorum <= workers or (backups and quorum != workers - backups):
        raise OptionsError(
            f"replicas_to_aggregate must be a whole number from 1 to {workers}, the number of workers"
            f"{f', less {backups} backup workers' if backups else ''}; got {replicas_to_aggregate!r}"
        )
    return quorum
