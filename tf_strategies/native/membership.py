"""The membership of this process in a group, and in the group that the survivors form after a failure.

The survivors call the roll on a thread of their own as soon as the group has failed. So a worker takes part while its main
thread still computes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
import time
from typing import Sequence

from tf_strategies import at_exit
from tf_strategies.addresses import is_loopback
from tf_strategies.arbiter.asking import Arbiter
from tf_strategies.arbiter.votes import Vote
from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane.newcomer import Newcomer
from tf_strategies.control_plane.roll_call import ARBITER_SECONDS, Attempt, Roll, call_the_roll
from tf_strategies.control_plane.succession import FIRST, Succession
from tf_strategies.errors import (
    BootstrapError,
    JoinsLaterError,
    OptionsError,
    OthersTrainError,
    PerhapsFormedError,
)
from tf_strategies.native.communicator import Communicator, agreed_options
from tf_strategies.native.settings import settings_of
from tf_strategies.options import CommunicationOptions, Elastic
from tf_strategies.restarted import was_restarted
from tf_strategies.tls import TlsFiles

__all__ = ["Membership", "form_first"]

_log = logging.getLogger("tf_strategies")

_MOST_JOINS = 3
_RESTARTED_SECONDS = 60.0
_CONNECT_SECONDS = 5.0  # beyond the patience
_LATER_SECONDS = 0.5  # until a worker asks again that came while the others form their first group
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
        self._abandoned, self._why_abandoned = False, ""

    @classmethod
    def form(
        cls,
        cluster: Cluster,
        options: CommunicationOptions,
        elastic: Elastic | None,
        *,
        within: float | None = None,
        succession: Succession = FIRST,
    ) -> Membership:
        """Forms the group of a cluster; see `Communicator.connect`.

        Args:
            cluster: the workers.
            options: the options of communication.
            elastic: how the survivors of a failure form a group again; None if they do not.
            within: how long it waits for the other workers, in seconds; `options.timeout` by default.
            succession: how the group follows another one.

        Raises:
            BootstrapError: the group could not form.
        """
        self = cls(cluster, options, elastic)
        self.communicator = Communicator.connect(
            cluster,
            options,
            within=within,
            on_failed=None if elastic is None else self._on_failed,
            elastic=elastic,
            succession=succession,
        )
        return self

    @classmethod
    def join(cls, cluster: Cluster, options: CommunicationOptions, elastic: Elastic, fit: int) -> Membership:
        """Joins the other workers, which train. It may wait as long as they train.

        Args:
            cluster: the cluster.
            options: the options of communication.
            elastic: those of elastic training.
            fit: the number of the call of `fit` that this worker joins, from 1.

        Raises:
            BootstrapError: the others refuse it, or have ended, or their arbiter is another machine on each host.
        """
        settings, tls = settings_of(cluster, options)
        asking = Newcomer(cluster, agreed_options(options, elastic), settings.secret, tls)
        silence = _look_for_arbiter(cluster, options, elastic)
        if silence:
            _log.warning("%s joins the others without an arbiter: %s", cluster.name_of(cluster.task), silence)
        attempts = 0
        while True:
            attempts += 1
            admission = asking.join(fit)
            tasks = (*admission.tasks, *admission.joins)
            size = len(admission.tasks)
            roll = Roll(tasks.index(cluster.task), size, frozenset(), 1, newcomers=len(admission.joins))
            try:
                return cls._form_next(admission.cluster, options, elastic, tasks, roll, admission.epoch)
            except BootstrapError as error:
                if attempts == _MOST_JOINS:  # the others wait for it each time
                    raise
                _log.warning("%s asks again to join: %s", cluster.name_of(cluster.task), error)

    @property
    def names(self) -> list[str]:
        """The names of the workers, by rank."""
        return [self._cluster.name_of(task) for task in self._cluster.worker_tasks]

    @property
    def is_succeeded(self) -> bool:
        """Whether another group follows this one, which has ended."""
        return self._elastic is not None and bool(
            self.communicator.lost or self.communicator.joins or self.communicator.leavers
        )

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

    def abandon(self, why: str = "") -> None:
        """Leaves the group that the survivors form, or does not join it. It returns within a limited time.

        Args:
            why: the error for which the others count this process as lost; "" if they have no need of it.
        """
        with self._lock:
            self._abandoned, self._why_abandoned = True, why
            done = self._successor.done() and self._successor.exception() is None
        if done:
            self._successor.result().abandon(why)
            self._successor.result().communicator.close(why)

    def wait_until_closed(self, seconds: float) -> None:
        """Waits until a group that this process leaves in good order is closed, and the others know that, or not longer."""
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self._successor.exception(seconds)

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
                formed.communicator.close(self._why_abandoned)
                raise BootstrapError("the strategy was closed")
        except BaseException as error:
            self._successor.set_exception(error)

    def _regroup(self, failed: Communicator) -> Membership:
        """Forms the group of the survivors. If another worker is lost meanwhile, it tries again without it."""
        if self._elastic is None or not self.is_succeeded:
            raise BootstrapError(failed.failure)
        failed.close()
        if failed.rank in failed.lost | failed.leavers:
            raise BootstrapError(failed.failure)
        cluster = self._cluster.with_workers(failed.workers) if failed.workers else self._cluster
        joins = [task for task in cluster.absent if str(task) in failed.joins]
        joins.sort(key=lambda task: failed.joins.index(str(task)))
        size, tasks = self._cluster.size, (*self._cluster.worker_tasks, *joins)
        last, until = "", time.monotonic() + _REGROUP_SECONDS
        perhaps_formed: frozenset[Attempt] = frozenset()
        while time.monotonic() < until:
            if self._abandoned:
                raise BootstrapError("the strategy was closed")
            roll = Roll(
                failed.rank,
                size,
                failed.lost,
                self._elastic.min_workers,
                newcomers=len(joins),
                leavers=failed.leavers,
                perhaps_formed=perhaps_formed,
                has_arbiter=self._elastic.arbiter is not None,
            )
            try:
                return self._form_next(cluster, self._options, self._elastic, tasks, roll, failed.epoch)
            except _NotFormedError as error:
                last, perhaps_formed = str(error), perhaps_formed | error.attempts
        raise BootstrapError(
            f"the survivors did not form a group again within {_REGROUP_SECONDS:g} s: {last}"
        )

    @classmethod
    def _form_next(
        cls,
        cluster: Cluster,
        options: CommunicationOptions,
        elastic: Elastic,
        tasks: Sequence[Task],
        roll: Roll,
        epoch: int,
    ) -> Membership:
        """Finds out who forms the next group, and forms it.

        Args:
            cluster: the cluster.
            options: the options of communication.
            elastic: those of elastic training.
            tasks: those of the last group by rank, and then the newcomers.
            roll: what this task knows of them.
            epoch: the number of the last group.

        Raises:
            _NotFormedError: it could not form.
            BootstrapError: this task is not in it.
        """
        settings, tls = settings_of(cluster, options)
        arbiter = _arbiter_of(elastic, settings.secret, tls)

        def ask_arbiter(half: frozenset[int], names: tuple[str, ...]) -> str:
            return "" if arbiter is None else arbiter.objection(Vote(epoch, half, names))

        following = call_the_roll(
            cluster.whole,
            tasks,
            roll,
            epoch=epoch,
            patience=elastic.patience,
            secret=settings.secret,
            tls=tls,
            ask_arbiter=ask_arbiter,
        )
        within = elastic.patience + _CONNECT_SECONDS
        succession = Succession(epoch, frozenset(following.worker_tasks).intersection(tasks[roll.size :]))
        try:
            return cls.form(following, options, elastic, within=within, succession=succession)
        except PerhapsFormedError as error:
            attempt = tuple(map(tasks.index, following.worker_tasks))
            raise _NotFormedError(str(error), attempt) from error
        except BootstrapError as error:
            raise _NotFormedError(str(error)) from error


class _NotFormedError(BootstrapError):
    """The next group could not form, but another attempt may succeed.

    Attributes:
        attempts: that group, if it may have formed without this task.
    """

    def __init__(self, message: str, *attempts: Attempt) -> None:
        super().__init__(message)
        self.attempts = frozenset(attempts)


def form_first(
    cluster: Cluster, options: CommunicationOptions, elastic: Elastic | None
) -> Membership | Cluster:
    """Forms the first group of a cluster.

    A worker that was started again waits for the others for a shorter time, because they may have ended. The arbiter must answer.

    Returns:
        The membership, or the cluster as the others know it if they train already, so that this worker can only join their `fit`.

    Raises:
        BootstrapError: the group could not form, the others refuse this worker, or the arbiter does not answer.
        OptionsError: the cluster has more workers than may train.
    """
    if elastic is None:
        return Membership.form(cluster, options, None)
    within = min(options.timeout, _RESTARTED_SECONDS) if was_restarted() else options.timeout
    until, known = time.monotonic() + within, cluster
    while True:
        found = _cluster_that_trains(known, options, elastic)
        if found is not None:
            return found
        if elastic.max_workers is not None and cluster.size > elastic.max_workers:
            raise OptionsError(
                f"max_workers is {elastic.max_workers}, but TF_CONFIG lists {cluster.size} workers, which are to begin together; "
                "if others train already, none of them has answered: check its network and the addresses in TF_CONFIG"
            )
        silence = _look_for_arbiter(cluster, options, elastic)
        if silence:
            raise BootstrapError(f"{cluster.name_of(cluster.task)} does not begin: {silence}")
        try:
            return Membership.form(cluster, options, elastic, within=within)
        except (JoinsLaterError, OthersTrainError) as error:
            if time.monotonic() >= until:
                raise
            if isinstance(error, OthersTrainError) and len(error.workers) > len(known.worker_addresses):
                # To look for them only: if they end, `cluster` forms the first group.
                known = known.with_workers(error.workers).whole
            _log.warning("%s", error)
            time.sleep(_LATER_SECONDS)


def _cluster_that_trains(cluster: Cluster, options: CommunicationOptions, elastic: Elastic) -> Cluster | None:
    """Returns the cluster as the others know it, if they train already.

    Raises:
        BootstrapError: they refuse this worker.
    """
    settings, tls = settings_of(cluster, options)
    asking = Newcomer(cluster, agreed_options(options, elastic), settings.secret, tls)
    return asking.cluster if asking.finds_group(restarted=was_restarted(), timeout=options.timeout) else None


def _arbiter_of(elastic: Elastic, secret: bytes, tls: TlsFiles | None) -> Arbiter | None:
    return None if elastic.arbiter is None else Arbiter(elastic.arbiter, secret, tls, ARBITER_SECONDS)


def _look_for_arbiter(cluster: Cluster, options: CommunicationOptions, elastic: Elastic) -> str:
    """Returns why the arbiter does not answer and what to do, or "" if it answers or there is none.

    Raises:
        BootstrapError: other hosts cannot reach it.
    """
    settings, tls = settings_of(cluster, options)
    arbiter = _arbiter_of(elastic, settings.secret, tls)
    if arbiter is None:
        return ""
    if is_loopback(elastic.arbiter or "") and not all(map(is_loopback, cluster.worker_addresses)):
        raise BootstrapError(
            f"{cluster.name_of(cluster.task)} does not begin: other hosts cannot reach the arbiter at {elastic.arbiter}, because "
            "it is a loopback address; give it an address that all workers reach"
        )
    return arbiter.silence()
