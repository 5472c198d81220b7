"""The membership of this process in a group, and in the group that the survivors form after a failure.

The survivors call the roll on a thread of their own as soon as the group has failed. So a worker takes part while its main
thread still computes.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time

from tf_strategies import at_exit
from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.roll_call import Roll, call_the_roll
from tf_strategies.errors import BootstrapError
from tf_strategies.native.communicator import Communicator
from tf_strategies.native.settings import settings_of
from tf_strategies.options import CommunicationOptions, Elastic

__all__ = ["Membership"]

_CONNECT_SECONDS = 5.0  # beyond the patience
_REGROUP_SECONDS = 120.0  # for all attempts


class Membership:
    """Holds the communicator of one group, made by `form`.

    Attributes:
        communicator: connects this process with the other workers.
        failed_at: time.monotonic() of the failure of the group.
    """

    communicator: Communicator
    failed_at = 0.0

    def __init__(self, cluster: Cluster, options: CommunicationOptions, elastic: Elastic | None) -> None:
        self._cluster, self._options, self._elastic = cluster, options, elastic
        self._successor: concurrent.futures.Future[Membership] = concurrent.futures.Future()
        self._lock = threading.Lock()
        self._abandoned = False

    @classmethod
    def form(
        cls,
        cluster: Cluster,
        options: CommunicationOptions,
        elastic: Elastic | None,
        *,
        within: float | None = None,
    ) -> Membership:
        """Forms the group of a cluster; see `Communicator.connect`.

        Args:
            cluster: the workers.
            options: the options of communication.
            elastic: how the survivors of a failure form a group again; None if they do not.
            within: how long it waits for the other workers, in seconds; `options.timeout` by default.

        Raises:
            BootstrapError: the group could not form.
        """
        self = cls(cluster, options, elastic)
        self.communicator = Communicator.connect(
            cluster,
            options,
            within=within,
            agreed={} if elastic is None else elastic.digest_fields(),
            on_failed=None if elastic is None else self._on_failed,
        )
        return self

    @property
    def names(self) -> list[str]:
        """The names of the workers, by rank."""
        return [self._cluster.name_of(task) for task in self._cluster.worker_tasks]

    @property
    def is_succeeded(self) -> bool:
        """Whether survivors form a group again, after this one has failed."""
        return self._elastic is not None and bool(self.communicator.lost)

    def successor(self) -> Membership:
        """Returns the membership in the group of the survivors. Blocks for a limited time until they have formed it.

        Raises:
            BootstrapError: this process is not in it, or there is none.
        """
        try:
            return self._successor.result(2 * _REGROUP_SECONDS)
        except concurrent.futures.TimeoutError:
            raise BootstrapError(
                f"the survivors did not form a group again within {2 * _REGROUP_SECONDS:g} s; see their logs, then restart all "
                "workers"
            ) from None

    def abandon(self) -> None:
        """Leaves the group that the survivors form, or does not join it. It returns within a limited time."""
        with self._lock:
            self._abandoned = True
            done = self._successor.done() and self._successor.exception() is None
        if done:
            self._successor.result().abandon()
            self._successor.result().communicator.close()

    def _on_failed(self, communicator: Communicator) -> None:
        self.failed_at = time.monotonic()
        threading.Thread(
            target=self._succeed, args=(communicator,), name="tf_strategies regroup", daemon=True
        ).start()

    def _succeed(self, failed: Communicator) -> None:
        try:
            formed = self._regroup(failed)
            at_exit.register(formed.communicator.close_at_exit)
            with self._lock:
                abandoned = self._abandoned
                if not abandoned:
                    self._successor.set_result(formed)
            if abandoned:
                formed.communicator.close()
                raise BootstrapError("the strategy was closed")
        except BaseException as error:
            self._successor.set_exception(error)

    def _regroup(self, failed: Communicator) -> Membership:
        """Forms the group of the survivors. If another worker is lost meanwhile, it tries again without it."""
        if self._elastic is None or not failed.lost:
            raise BootstrapError(failed.failure)
        failed.close()
        if failed.rank in failed.lost:
            raise BootstrapError(failed.failure)
        settings, tls = settings_of(self._cluster, self._options)
        patience, tasks = self._elastic.patience, self._cluster.worker_tasks
        last, until = "", time.monotonic() + _REGROUP_SECONDS
        while time.monotonic() < until:
            if self._abandoned:
                raise BootstrapError("the strategy was closed")
            roll = Roll(failed.rank, len(tasks), failed.lost, self._elastic.min_workers)
            members = call_the_roll(
                self._cluster, roll, epoch=failed.epoch, patience=patience, secret=settings.secret, tls=tls
            )
            others = [task for rank, task in enumerate(tasks) if rank not in members]
            try:
                return Membership.form(
                    self._cluster.without(others),
                    self._options,
                    self._elastic,
                    within=patience + _CONNECT_SECONDS,
                )
            except BootstrapError as error:
                last = str(error)
        raise BootstrapError(
            f"the survivors did not form a group again within {_REGROUP_SECONDS:g} s: {last}"
        )
