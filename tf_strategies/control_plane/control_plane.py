"""The control plane of a group of workers: how they meet, exchange addresses, and learn of failures."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.agreement import terms_of
from tf_strategies.control_plane.coordinator import Coordinator
from tf_strategies.control_plane.distrust import DistrustError
from tf_strategies.control_plane.link import Link, OnClosed, OnMessage
from tf_strategies.control_plane.local_link import LocalLink
from tf_strategies.control_plane.member import Callbacks, Member
from tf_strategies.control_plane.messages import Failure, encode
from tf_strategies.control_plane.notices import NoticeWatch, give_notice
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.control_plane.stopping import Stopping
from tf_strategies.tls import TLS_FOLDER, TlsFiles

_SETTLE_SECONDS = 12.0  # a bound above the coordinator's own ones


class ControlPlane:
    """This rank's membership in a group, from `join` to `close`. Thread-safe.

    Attributes:
        rank: this rank.
        size: the number of ranks.
    """

    def __init__(self, cluster: Cluster, member: Member, secret: bytes, tls: TlsFiles | None) -> None:
        self.rank = _rank(cluster)
        self._secret, self._tls = secret, tls
        self.size = cluster.size
        self._cluster = cluster
        self._member = member
        self._coordinator: Coordinator | None = None
        self._server: ControlServer | None = None
        self._notices: NoticeWatch | None = None

    @classmethod
    def join(
        cls,
        cluster: Cluster,
        *,
        options: Mapping[str, Any],
        timeout: float,
        secret: bytes,
        on_abort: Callable[[int, str], None],
        describe: Callable[[int], str],
        waiting: Callable[[], tuple[int, float, str] | None],
        tls: TlsFiles | None = None,
    ) -> ControlPlane:
        """Blocks until all workers of the cluster have joined. They may start in any order.

        Args:
            cluster: this task must be one of its `worker_tasks`.
            options: JSON values that must be the same on all workers, by the name a user knows them by.
            timeout: seconds for joining, and for each exchange.
            secret: of the cluster; b"" if it has none. Nobody joins who does not know it.
            on_abort: called once with a Code and one line when the group fails: a member was lost, a verdict
                was found, or a wait cannot end.
            describe: what this rank last asked for on an instance, for messages.
            waiting: the collective this rank waits in: instance, seconds so far, description; None when idle.
              The three are called on threads of the control plane and must not block.
            tls: the certificate of this task; None for connections without TLS. All workers must have one, or none.

        Raises:
            BootstrapError: the group could not form; names the task, its address and the remedy.
        """
        rank = _rank(cluster)
        tasks = cluster.worker_tasks
        names = tuple(cluster.name_of(task) for task in tasks)
        terms = terms_of(cluster, options)
        member = Member(
            rank, tuple(map(str, tasks)), names, terms, timeout, Callbacks(on_abort, describe, waiting)
        )
        plane = cls(cluster, member, secret, tls)
        try:
            if rank == 0:
                plane._serve(names[0], terms, timeout)
            member.join(plane._open_link)
        except BaseException as error:
            plane.close()
            if isinstance(error, DistrustError) and error.variable == TLS_FOLDER:
                give_notice(cluster.address_of(cluster.task), str(error))
            raise
        plane._stop_notices()
        return plane

    @property
    def epoch(self) -> int:
        """The group's number, chosen at random by rank 0, the same on all."""
        return self._member.epoch

    @property
    def stopping(self) -> Stopping:
        """Where the trainings of this rank stop."""
        return self._member.stopping

    def exchange(self, payload: dict[str, Any], *, what: str) -> list[dict[str, Any]]:
        """Gathers a small JSON object from every rank, on every rank. All ranks must call in the same order.

        Args:
            payload: less than 1 MiB as JSON.
            what: names the exchange in messages; the same on all ranks.

        Returns:
            The payloads by rank.

        Raises:
            BootstrapError: the group failed, or a rank did not take part within the timeout.
            ValueError: the payload is too large.
        """
        encode({"type": "exchange", "sequence": 1 << 62, "epoch": 1 << 62, "what": what, "payload": payload})
        return self._member.exchange(payload, what)

    def barrier(self, what: str) -> None:
        """Returns once every rank has called it; raises like `exchange`."""
        self._member.exchange({}, what)

    def report_failure(self, code: int, message: str, instance: int = -1, peer: int = -1) -> None:
        """Reports what this rank's data plane saw; all ranks get the common verdict through `on_abort`.

        Args:
            code: a Code but OK.
            message: the cause as seen here.
            instance: the collective, or -1.
            peer: the other rank, or -1.
        """
        self._member.report_failure(code, message, instance, peer)

    def judge(self, topic: str, judge: Callable[..., str | None] | None) -> None:
        """Sets the function that compares what ranks say about a topic; on rank 0.

        None ends the comparison. Other ranks do nothing.

        Args:
            topic: the same on all ranks.
            judge: called on the coordinator's thread with a key, two names and two payloads, both in the order of the ranks;
                returns why the group must end, with which all ranks fail, or None. Must not block.
        """
        coordinator = self._coordinator
        if coordinator is None:
            return
        if judge is None:
            coordinator.judges.pop(topic, None)
        else:
            coordinator.judges[topic] = judge

    def compare(self, topic: str, key: str, payload: Any) -> None:
        """Says something about a key, which rank 0 compares with what others say about it. Never blocks, nothing is returned.

        Args:
            topic: one that rank 0 has a judge for.
            key: names what all ranks speak of.
            payload: JSON, some kilobytes.
        """
        self._member.compare(topic, key, payload)

    def failed(self) -> Failure | None:
        """Returns why the group failed; None while it has not."""
        return self._member.failed()

    def close(self, why: str = "") -> None:
        """Leaves the group, which is told so.

        Bounded: rank 0 stays up to 10 s for members that have not left. May be called again. Starts no
        thread.

        Args:
            why: the error that made this rank leave, for the message of those that wait for it; "" for none.
        """
        self._stop_notices()
        self._member.close(why)
        if self._coordinator is not None:
            self._coordinator.wait_settled(_SETTLE_SECONDS)
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None

    def _serve(self, name: str, terms: dict[str, Any], timeout: float) -> None:
        self._coordinator = Coordinator(self._cluster, terms, timeout)
        self._coordinator.start()
        if self.size > 1:
            address = self._cluster.address_of(self._cluster.worker_tasks[0])
            self._server = ControlServer(
                name, address, self.size, self._secret, self._coordinator.post, self._tls
            )
            missing = {
                rank: self._cluster.address_of(task) for rank, task in enumerate(self._cluster.worker_tasks)
            }
            self._notices = NoticeWatch(
                {rank: at for rank, at in missing.items() if rank}, self._coordinator.post_notice
            )

    def _stop_notices(self) -> None:
        if self._notices is not None:
            self._notices.stop()
            self._notices = None

    def _open_link(self, on_message: OnMessage, on_closed: OnClosed) -> Link:
        if self._coordinator is not None:
            return LocalLink(self._coordinator, on_message)
        address = self._cluster.address_of(self._cluster.worker_tasks[0])
        return RemoteLink(address, self._secret, on_message, on_closed, self._tls)


def _rank(cluster: Cluster) -> int:
    if cluster.rank is None:
        raise ValueError(f"{cluster.task} takes no part in collective training; only a chief and workers do")
    return cluster.rank
