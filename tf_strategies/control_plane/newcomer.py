"""The side of a newcomer: a task that starts while the others may be training already.

It asks every other task of the cluster, because any of them may be rank 0 of the group that trains. From the answers it learns of
workers that have joined since.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import queue
import socket
import time
from typing import Iterator, Mapping, NamedTuple

from tf_strategies.addresses import split_address
from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.succession import newcomer_terms
from tf_strategies.errors import BootstrapError
from tf_strategies.tls import TlsFiles

__all__ = ["Admission", "Newcomer"]

_log = logging.getLogger("tf_strategies")

_PROBE_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.2
_GAP_SECONDS = 0.4  # in which nobody listens, because a group is just forming again
_LOST_SECONDS = 20.0  # until the others have noticed a loss and begun to form again
_HELD_SECONDS = 130.0  # until a group that answers has formed again
_FULL_SECONDS = 2.0  # until it asks again whether there is room
_PARTING_SECONDS = 1.0
_FIRST_PROGRESS_SECONDS = 5.0
_PROGRESS_SECONDS = 60.0
_PROBES_AT_ONCE = 16


class Admission(NamedTuple):
    """Says whom a newcomer joins.

    Attributes:
        cluster: the whole cluster, as the next group knows it.
        epoch: the number of the group that has ended.
        tasks: its tasks, by rank.
        joins: the tasks that join the next group.
    """

    cluster: Cluster
    epoch: int
    tasks: tuple[Task, ...]
    joins: tuple[Task, ...]


class _Answer(NamedTuple):
    task: Task
    message: Message


class Newcomer:
    """Asks for the group that trains.

    Args:
        cluster: the whole cluster, as far as this task knows it.
        options: JSON values that must be equal on all workers, by the name that users know.
        secret: of the cluster, or b"".
        tls: the certificate of this task, or None.
    """

    def __init__(
        self, cluster: Cluster, options: Mapping[str, object], secret: bytes, tls: TlsFiles | None
    ) -> None:
        self._cluster, self._secret, self._tls = cluster, secret, tls
        self._terms = newcomer_terms(cluster, options)
        self._me = cluster.name_of(cluster.task)

    @property
    def cluster(self) -> Cluster:
        """The whole cluster, as far as this task knows it."""
        return self._cluster

    def finds_group(self, *, restarted: bool, timeout: float = _HELD_SECONDS) -> bool:
        """Returns True if the other tasks train already, without this one. Waits while they form their first group without it.

        Args:
            restarted: whether this task is known to have started again. Then it waits until the others have noticed its loss.
            timeout: within how many seconds the others must form their first group.

        Raises:
            BootstrapError: the group refuses this task.
        """
        start, next_progress = time.monotonic(), _FIRST_PROGRESS_SECONDS
        held_since = start  # or since the first group has formed
        while True:
            answers = self._ask_all()
            if any(each.message["type"] == "training" for each in answers):
                return True
            if any(each.message["type"] == "forming" for each in answers):
                return False
            now = time.monotonic()
            waited = now - start
            held = next((str(each.message.get("message")) for each in answers if _may_retry(each)), "")
            later = any(each.message.get("later") for each in answers)
            held_since = now if later else held_since
            if held and (waited >= timeout if later else now - held_since >= _HELD_SECONDS):
                raise BootstrapError(f"{self._me} cannot join: {held}")
            if not held and waited >= (_LOST_SECONDS if restarted else _GAP_SECONDS):
                return False
            if waited >= next_progress:
                next_progress *= 2
                _log.warning(
                    "%s looks for the group of the others (%.0f s): %s",
                    self._me,
                    waited,
                    held or "nobody answers",
                )
            time.sleep(_RETRY_SECONDS)

    def join(self, fit: int) -> Admission:
        """Waits until the others, which train, form a group with this task. It may wait as long as they train.

        Args:
            fit: the number of the call of `fit` that this task joins, from 1.

        Raises:
            BootstrapError: the others refuse it, or have ended.
        """
        lost_since: float | None = None
        start, next_progress = time.monotonic(), _FIRST_PROGRESS_SECONDS
        while True:
            answers = self._ask_all()
            found = next((each for each in answers if each.message["type"] == "training"), None)
            now = time.monotonic()
            full = next((each.message for each in answers if each.message.get("full")), None)
            if full is not None:
                lost_since = None
                if now - start >= next_progress:
                    next_progress = now - start + _PROGRESS_SECONDS
                    _log.warning("%s waits for room (%.0f s): %s", self._me, now - start, full["message"])
            elif any(map(_may_retry, answers)):
                lost_since = None
            elif found is not None:
                lost_since = None
                admission = None
                with contextlib.suppress(OSError):  # its name cannot be resolved now
                    admission = self._wait_for_admission(found.task, fit)
                if admission is not None:
                    return admission
            else:
                lost_since = lost_since or now
                if now - lost_since >= _LOST_SECONDS:
                    raise BootstrapError(
                        f"{self._me} cannot join: the others have ended their training, or were lost; see their logs"
                    )
            time.sleep(_RETRY_SECONDS if full is None else _FULL_SECONDS)

    def _ask_all(self) -> list[_Answer]:
        """Returns the answers of the tasks that listen, by rank."""
        others = [task for task in self._cluster.worker_tasks if task != self._cluster.task]
        with concurrent.futures.ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
            listening = list(pool.map(self._listens, others))
        answers = []
        for task in (task for task, found in zip(others, listening) if found):
            message = None
            with (
                contextlib.suppress(OSError),
                self._asking(task, fit=0) as (_, answer),
            ):  # its name cannot be resolved now
                message = _first(answer, _ANSWER_SECONDS)
            if message is None:
                continue
            if message["type"] == "refused" and not message.get("retry"):
                raise BootstrapError(f"{self._me} cannot join: {message.get('message')}")
            if message["type"] == "training":
                self._learn(message)
            answers.append(_Answer(task, message))
        return answers

    def _learn(self, message: Message) -> None:
        """Takes over the workers that a group knows, if it knows more."""
        try:
            workers = messages.addresses(message, "workers")
            cluster = self._cluster.with_workers(workers).whole
        except ValueError as error:
            raise BootstrapError(f"{self._me} cannot join: {error}") from None
        if len(workers) > len(self._cluster.worker_addresses):
            self._cluster = cluster

    def _listens(self, task: Task) -> bool:
        place = split_address(self._cluster.address_of(task))
        try:
            socket.create_connection(place, timeout=_PROBE_SECONDS).close()
        except OSError:
            return False
        return True

    def _wait_for_admission(self, task: Task, fit: int) -> Admission | None:
        """Returns None if the group of a task has ended otherwise."""
        with self._asking(task, fit) as (link, answer):
            while True:
                try:
                    message = answer.get(timeout=_PROGRESS_SECONDS)
                except queue.Empty:
                    _log.warning(
                        "%s waits to join the others in fit or ElasticState.run; %s answers",
                        self._me,
                        self._cluster.name_of(task),
                    )
                    continue
                if message is None:
                    return None
                if message["type"] == "admitted":
                    link.send({"type": "coming"})
                    admission = self._admission(message)
                    while (last := _first(answer, _PARTING_SECONDS)) is not None:
                        if last["type"] == "admitted":  # with others
                            link.send({"type": "coming"})
                            admission = self._admission(last)
                    return admission
                if message["type"] == "refused":
                    if message.get("retry"):
                        return None
                    raise BootstrapError(f"{self._me} cannot join: {message.get('message')}")

    def _admission(self, message: Message) -> Admission:
        try:
            cluster = self._cluster.with_workers(messages.addresses(message, "workers")).whole
            all_tasks = {str(task): task for task in cluster.worker_tasks}
            tasks, joins = (
                tuple(all_tasks[text] for text in messages.texts(message, key)) for key in ("tasks", "joins")
            )
            return Admission(cluster, messages.integer(message, "epoch"), tasks, joins)
        except (KeyError, ValueError) as error:
            raise BootstrapError(f"{self._me} cannot join: a wrong answer ({error})") from None

    @contextlib.contextmanager
    def _asking(self, task: Task, fit: int) -> Iterator[tuple[RemoteLink, queue.SimpleQueue[Message | None]]]:
        """Opens a link to a task. Yields it and its answers; None is the end."""
        answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        link = RemoteLink(
            self._cluster.address_of(task),
            self._secret,
            lambda link, message: answers.put(message),
            lambda link, reason: answers.put(None),
            self._tls,
        )
        try:
            workers = list(self._cluster.worker_addresses)
            link.send(
                {
                    "type": "newcomer",
                    "task": str(self._cluster.task),
                    "workers": workers,
                    "terms": self._terms,
                    "fit": fit,
                }
            )
            yield link, answers
        finally:
            link.close()


def _first(answers: queue.SimpleQueue[Message | None], seconds: float) -> Message | None:
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return None


def _may_retry(answer: _Answer) -> bool:
    return answer.message["type"] == "refused" and bool(answer.message.get("retry"))
