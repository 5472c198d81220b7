"""The control plane of a group of workers: they join, exchange addresses, and learn of failures."""

from __future__ import annotations

from typing import Callable, Mapping

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.agreement import terms_of
from tf_strategies.control_plane.callbacks import Callbacks
from tf_strategies.control_plane.coordinator import Coordinator, Newcomers
from tf_strategies.control_plane.distrust import DistrustError
from tf_strategies.control_plane.herald import Herald
from tf_strategies.control_plane.link import Link, OnClosed, OnMessage
from tf_strategies.control_plane.local_link import LocalLink
from tf_strategies.control_plane.member import Member
from tf_strategies.control_plane.messages import Failure, Pace, Wait, encode
from tf_strategies.control_plane.notices import NoticeWatch, give_notice
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.control_plane.stopping import Stopping
from tf_strategies.control_plane.succession import Succession, newcomer_terms
from tf_strategies.errors import BootstrapError, PerhapsFormedError
from tf_strategies.options import ELASTIC_HEARTBEAT_TIMEOUT
from tf_strategies.tls import TLS_FOLDER, TlsFiles
from tf_strategies.types import JsonObject

_SETTLE_SECONDS = 12.0  # longer than the coordinator's own limits


class ControlPlane:
    """This rank's membership in a group, from `join` to `close`. Thread-safe.

    Attributes:
        rank: this rank.
        size: the number of ranks.
    """

    def __init__(
        self, cluster: Cluster, member: Member, secret: bytes, tls: TlsFiles | None, heartbeat_timeout: float
    ) -> None:
        self.rank = _rank(cluster)
        self._secret, self._tls, self._heartbeat_timeout = secret, tls, heartbeat_timeout
        self.size = cluster.size
        self._cluster = cluster
        self._member = member
        self._coordinator: Coordinator | None = None
        self._server: ControlServer | None = None
        self._notices: NoticeWatch | None = None
        self._herald: Herald | None = None

    @classmethod
    def join(
        cls,
        cluster: Cluster,
        *,
        options: Mapping[str, object],
        timeout: float,
        heartbeat_timeout: float = ELASTIC_HEARTBEAT_TIMEOUT,
        secret: bytes,
        on_abort: Callable[[int, str], None],
        describe: Callable[[int], str],
        waiting: Callable[[], Wait | None],
        pace: Callable[[], Pace | None] = lambda: None,
        waited_for_batches: Callable[[float], float | None] = lambda seconds: None,
        tls: TlsFiles | None = None,
        succession: Succession | None = None,
        most: int | None = None,
    ) -> ControlPlane:
        """Blocks until all workers of the cluster have joined. They may start in any order.

        The functions `on_abort`, `describe`, `waiting`, `pace` and `waited_for_batches` are called on threads of the control
        plane. They must not block.

        Args:
            cluster: the cluster. This task must be one of its `worker_tasks`.
            options: JSON values that must be equal on all workers, by the name that users know.
            timeout: the limit for joining, and for each exchange, in seconds.
            heartbeat_timeout: the number of seconds after which a silent member counts as lost.
            secret: the secret of the cluster, or b"" if it has none. Workers with another secret cannot join.
            on_abort: is called once when the group fails, with a Code and a message of one line. A group fails if
                a member is lost, if a member reports a failure, or if a wait cannot end.
            describe: returns a description of the last collective of this rank on an instance, for messages.
            waiting: returns the collective in which this rank waits; None if it does not wait.
            pace: returns how far this rank is; None if this is not known.
            waited_for_batches: returns the share of the last seconds in which this rank waited for others to have their next
                batch; None if this is not known.
            tls: the certificate of this task; None for connections without TLS. All workers must have one, or none.
            succession: how the group follows another one; None if groups have no followers.
            most: the most members of a group that grows; None if it does not.

        Returns:
            The membership of this rank.

        Raises:
            BootstrapError: the group could not form. The message names the task, its address and the remedy.
        """
        rank = _rank(cluster)
        tasks = cluster.worker_tasks
        names = tuple(cluster.name_of(task) for task in tasks)
        terms = terms_of(cluster, options if succession is None else succession.added_to(options))
        callbacks = Callbacks(on_abort, describe, waiting, pace, waited_for_batches)
        member = Member(rank, tuple(map(str, tasks)), names, terms, timeout, callbacks)
        plane = cls(cluster, member, secret, tls, heartbeat_timeout)
        try:
            if rank == 0:
                plane._serve(
                    names[0], terms, timeout, callbacks, _newcomers(cluster, options, succession, most)
                )
            member.join(plane._open_link)
        except BaseException as error:
            plane.close()
            if isinstance(error, DistrustError) and error.variable == TLS_FOLDER:
                give_notice(cluster.address_of(cluster.task), str(error))
            raise
        plane._stop_notices()
        if succession is not None and most is not None and not succession.is_first:
            plane._proclaim(newcomer_terms(cluster, options))
        return plane

    @property
    def epoch(self) -> int:
        """The number of the group. Rank 0 chooses it at random, and it is equal on all ranks."""
        return self._member.epoch

    @property
    def left(self) -> frozenset[int]:
        """The ranks that have left the group in an orderly way, as far as this rank knows."""
        return self._member.left

    @property
    def stopping(self) -> Stopping:
        """The decisions where the trainings of this rank stop."""
        return self._member.stopping

    @property
    def clock_offset(self) -> tuple[int, int] | None:
        """How far the monotonic clock of rank 0 is ahead of this one, and the largest error, in nanoseconds."""
        return (0, 0) if self.rank == 0 else self._member.clock.estimate()

    def exchange(self, payload: JsonObject, *, what: str) -> list[JsonObject]:
        """Gathers a small JSON object from every rank on every rank.

        All ranks must call it in the same order.

        Args:
            payload: the object, smaller than 1 MiB as JSON.
            what: the name of the exchange in messages. It must be equal on all ranks.

        Returns:
            The payloads by rank.

        Raises:
            BootstrapError: the group has failed, or a rank did not take part within the timeout.
            ValueError: the payload is too large.
        """
        encode({"type": "exchange", "sequence": 1 << 62, "epoch": 1 << 62, "what": what, "payload": payload})
        return self._member.exchange(payload, what)

    def barrier(self, what: str) -> None:
        """Waits until every rank has called it.

        Args:
            what: the name of the barrier in messages. It must be equal on all ranks.

        Raises:
            BootstrapError: the group has failed, or a rank did not call it within the timeout.
        """
        self._member.exchange({}, what)

    def report_failure(self, code: int, message: str, instance: int = -1, peer: int = -1) -> None:
        """Reports a failure that this rank has detected in its data plane.

        The coordinator then asks all ranks for details and decides on one cause. All ranks get it through
        `on_abort`.

        Args:
            code: a Code other than OK.
            message: the cause, as this rank sees it.
            instance: the number of the collective, or -1.
            peer: the other rank, or -1.
        """
        self._member.report_failure(code, message, instance, peer)

    def set_comparer(self, topic: str, comparer: Callable[..., str | None] | None) -> None:
        """Sets the function that compares the payloads of `compare` for a topic.

        It only has an effect on rank 0.

        Args:
            topic: the topic, equal on all ranks.
            comparer: the function, or None to compare no more. It is called on the coordinator's thread with a key,
                the names of two ranks, and their two payloads, in the order of the ranks. It returns None, or the
                reason why the group must end; then all ranks fail with this reason. It must not block.
        """
        coordinator = self._coordinator
        if coordinator is None:
            return
        if comparer is None:
            coordinator.comparers.pop(topic, None)
        else:
            coordinator.comparers[topic] = comparer

    def compare(self, topic: str, key: str, payload: object) -> None:
        """Sends a payload to rank 0, which compares it with the payloads of other ranks for the same key.

        It never blocks.

        Args:
            topic: a topic for which rank 0 has called `set_comparer`.
            key: identifies the payloads to compare.
            payload: a JSON value of a few kilobytes.
        """
        self._member.compare(topic, key, payload)

    def admit(self, fit: int | None) -> None:
        """Admits newcomers to a call of `fit` from now on; None: to none. It only has an effect on rank 0.

        All ranks must be in this call of `fit`, as long as newcomers may join.
        """
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.admissions.admit(fit)

    def step_ended(self) -> None:
        """Lets newcomers join now, if some are waiting. It only has an effect on rank 0, and never blocks."""
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.step_ended()

    def let_leave(self, ranks: frozenset[int]) -> None:
        """Ends the group, so that some ranks leave it and the others form the next one.

        All ranks must have agreed on them. It only has an effect on rank 0, and never blocks.
        """
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.let_leave(ranks)

    def complete(self) -> None:
        """Waits until every rank has called it; then the group has formed.

        Raises:
            PerhapsFormedError: the connection to rank 0 has ended, or a rank did not call it within the timeout. Then other
                ranks may know that the group has formed.
            BootstrapError: the group has failed before it has formed, for all ranks.
        """
        try:
            self.barrier("connected")
        except BootstrapError as error:
            if self._member.aborted:
                raise
            raise PerhapsFormedError(str(error)) from error

    def failed(self) -> Failure | None:
        """Returns the reason why the group has failed, or None."""
        return self._member.failed()

    def close(self, why: str = "") -> None:
        """Leaves the group and tells the other members.

        Rank 0 waits up to 10 s for members that have not left. It may be called again. It starts no thread.

        Args:
            why: the error that ended this rank, for the messages of ranks that wait for it; "" if there was none.
        """
        self._stop_notices()
        if self._herald is not None:
            self._herald.stop()
            self._herald = None
        self._member.close(why)
        if self._coordinator is not None:
            self._coordinator.wait_settled(_SETTLE_SECONDS)
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None

    def _serve(
        self,
        name: str,
        terms: dict[str, object],
        timeout: float,
        callbacks: Callbacks,
        newcomers: Newcomers | None,
    ) -> None:
        self._coordinator = Coordinator(
            self._cluster, terms, timeout, callbacks.waited_for_batches, newcomers
        )
        self._coordinator.start()
        if self.size > 1 or newcomers is not None:
            address = self._cluster.address_of(self._cluster.worker_tasks[0])
            streams = self.size if newcomers is None else max(self._cluster.whole.size, newcomers.most or 0)
            self._server = ControlServer(
                name,
                address,
                streams,
                self._secret,
                self._coordinator.post,
                self._tls,
                heartbeat_timeout=self._heartbeat_timeout,
            )
            missing = {
                rank: self._cluster.address_of(task) for rank, task in enumerate(self._cluster.worker_tasks)
            }
            self._notices = NoticeWatch(
                {rank: at for rank, at in missing.items() if rank}, self._coordinator.post_notice
            )

    def _proclaim(self, terms: dict[str, object]) -> None:
        """Tells the first task of the cluster of this group, if it is not in it."""
        cluster = self._cluster
        first = cluster.whole.worker_tasks[0]
        if self.rank == 0 and first != cluster.task:
            message = {
                "type": "elsewhere",
                "name": cluster.name_of(cluster.task),
                "workers": list(cluster.worker_addresses),
                "terms": terms,
            }
            self._herald = Herald(cluster.address_of(first), message, self._secret, self._tls)

    def _stop_notices(self) -> None:
        if self._notices is not None:
            self._notices.stop()
            self._notices = None

    def _open_link(self, on_message: OnMessage, on_closed: OnClosed) -> Link:
        if self._coordinator is not None:
            return LocalLink(self._coordinator, on_message)
        address = self._cluster.address_of(self._cluster.worker_tasks[0])
        return RemoteLink(address, self._secret, on_message, on_closed, self._tls, self._heartbeat_timeout)


def _newcomers(
    cluster: Cluster, options: Mapping[str, object], succession: Succession | None, most: int | None
) -> Newcomers | None:
    if succession is None:
        return None
    return Newcomers(cluster, newcomer_terms(cluster, options), succession, most)


def _rank(cluster: Cluster) -> int:
    if cluster.rank is None:
        raise ValueError(f"{cluster.task} takes no part in collective training; only a chief and workers do")
    return cluster.rank
