"""Defines what a server does with copies: it keeps its own on another server, and takes it over when it starts again."""

from __future__ import annotations

import abc
import threading
import time
from typing import Dict, Iterable, Optional, Sequence

import tensorflow as tf
from absl import logging

from tf_strategies.cluster import Cluster, Task
from tf_strategies.errors import BootstrapError
from tf_strategies.native import ledger, ledger_core
from tf_strategies.parameter_server.cluster import heartbeat
from tf_strategies.parameter_server.cluster.protection import Protection
from tf_strategies.parameter_server.cluster.variable_lists import TEXT, Kind, list_name, parse
from tf_strategies.parameter_server.copies.variable_session import Place, VariableSession

__all__ = ["ServerCopies"]

_COPY_EVERY_SECONDS = 0.7
_LEAST_PAUSE_SECONDS = 0.1
_SILENT_SECONDS = 10.0
_ASK_SECONDS = 1.5
_RETRY_SECONDS = 0.2
_STOPPED_WITHIN_SECONDS = 10.0


class ServerCopies(abc.ABC):
    """Copies this server to the next one again and again, and takes the copy over when this server starts.

    Args:
        server: the TensorFlow server of this process.
        cluster: the cluster of TF_CONFIG, with two servers or more. This process is one of them.
        protection: of this task.
    """

    def __init__(self, server: tf.distribute.Server, cluster: Cluster, protection: Protection) -> None:
        self._tasks = [Task("ps", index) for index in range(len(cluster.addresses["ps"]))]
        self._cluster, self._through_proxy = cluster, protection.has_gateway
        self._own = cluster.task.index
        self._following = (self._own + 1) % len(self._tasks)
        self._name = cluster.name_of(cluster.task)
        self._devices = [f"/job:ps/task:{task.index}" for task in self._tasks]
        self._target = server.target
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._copy_until_stopped, name="tf_strategies copies", daemon=True
        )
        self._statuses: Dict[str, Dict[int, str]] = {}

    def take_over(self, timeout: float) -> Optional[float]:
        """Gives this server what an earlier process of it held, before any worker connects.

        Args:
            timeout: the number of seconds to wait for other servers.

        Returns:
            When the copy was begun, in seconds since the epoch; None if no server has a copy, as at the start of training.

        Raises:
            BootstrapError: the copy could not be read.
        """
        if not self._wait_for(self._needed(), timeout):
            return None
        deadline = time.monotonic() + timeout
        while True:
            try:
                with self._open() as session:
                    return self._take_over(session)
            except tf.errors.OpError as error:
                # Other servers may still hold their connections to the earlier process.
                is_passing = isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError))
                if not is_passing or time.monotonic() > deadline:
                    following = self._cluster.name_of(self._tasks[self._following])
                    raise BootstrapError(
                        f"{self._name} could not take its variables over from {following}: {error.message}; start {self._name} "
                        f"again when {following} runs"
                    ) from error
            time.sleep(_RETRY_SECONDS)

    def before(self, name: str) -> Dict[int, str]:
        """Returns the workers that had joined a ledger before this process began, with their status."""
        return self._statuses.get(name, {})

    def start(self) -> None:
        """Begins to copy, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Copies no more, because training has ended. A thread in TensorFlow would make the end of the process a crash."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_STOPPED_WITHIN_SECONDS)

    @abc.abstractmethod
    def _needed(self) -> Sequence[int]:
        """Returns the servers without which this one cannot take its copy over."""

    @abc.abstractmethod
    def _open(self) -> VariableSession:
        """Returns a session with the servers whose variables are copied."""

    @abc.abstractmethod
    def _take_over(self, session: VariableSession) -> Optional[float]:
        """Does what `take_over` does, with servers that answer."""

    def _wait_for_next(self, session: VariableSession, seconds: float) -> None:
        """Waits until it is time for the next copy."""
        del session
        self._stopped.wait(seconds)

    def _pause(self, seconds: float) -> float:
        """Returns the number of seconds from the end of a copy, which took `seconds`, to the next one."""
        return _COPY_EVERY_SECONDS - seconds

    @abc.abstractmethod
    def _copy(self, session: VariableSession) -> None:
        """Makes one copy."""

    def _live(self, server: int, ledger_name: str) -> Place:
        """Returns where the variables are with which workers train."""
        return Place(self._devices[server], ledger_name)

    def _listed(
        self, session: VariableSession, servers: Iterable[int], names: Iterable[str]
    ) -> Dict[int, Dict[str, Dict[str, Kind]]]:
        """Returns the variables that workers use on servers, and their lists, as far as they have values.

        Returns:
            Their kinds, by server, by ledger, and by name.
        """
        places = {self._live(server, name): (server, name) for server in servers for name in names}
        lists = [place.variable(list_name(rank)) for place in places for rank in range(self._cluster.size)]
        listed: Dict[Place, Dict[str, Kind]] = {place: {} for place in places}
        for each, text in session.texts(lists).items():
            listed[each.place].update({each.name: TEXT, **parse(text)})
        found = session.with_values(
            place.variable(*it) for place, kinds in listed.items() for it in kinds.items()
        )
        kinds: Dict[int, Dict[str, Dict[str, Kind]]] = {}
        for place, (server, name) in places.items():
            kinds.setdefault(server, {})[name] = {
                each.name: each.kind for each in found if each.place == place
            }
        return kinds

    def _step(self, session: VariableSession, server: int, name: str) -> int:
        """Returns the step of the ledger of a server."""
        return int(
            session.run([session.once(("step", server, name), self._devices[server], ledger.step, name)])[0]
        )

    def _statuses_now(self, name: str) -> Dict[int, str]:
        joined = {
            rank: member.status
            for rank, member in enumerate(ledger_core.members(name))
            if member.incarnation != 0
        }
        return {**self.before(name), **joined}

    def _wait_for(self, servers: Sequence[int], timeout: float) -> bool:
        """Waits until servers answer. Returns False, and says so, if one does not."""
        began, said = time.monotonic(), False
        for server in servers:
            task = self._tasks[server]
            name, address = self._cluster.name_of(task), self._cluster.address_of(task)
            while reason := heartbeat.error_of_request(
                address, _ASK_SECONDS, through_proxy=self._through_proxy
            ):
                waited = time.monotonic() - began
                if waited > _SILENT_SECONDS and not said:
                    said = True
                    print(f"{self._name} waits for {name} ({reason})", flush=True)
                if waited > timeout:
                    logging.warning(
                        "%s begins without a copy: %s does not answer (%s)", self._name, name, reason
                    )
                    return False
                time.sleep(_RETRY_SECONDS)
        return True

    def _copy_until_stopped(self) -> None:
        session: Optional[VariableSession] = None
        copied = time.monotonic()
        pause, warned = self._pause(0.0), False
        while not self._stopped.wait(_LEAST_PAUSE_SECONDS):
            began = time.monotonic()
            try:
                session = session or self._open()
                self._wait_for_next(session, pause - _LEAST_PAUSE_SECONDS)
                began = time.monotonic()
                self._copy(session)
                copied, warned = time.monotonic(), False
            except Exception as error:  # a copy that stops must be noticed, whatever the reason
                if session is not None:
                    session.close()
                    session = None
                silent = time.monotonic() - copied
                if silent > _SILENT_SECONDS and not warned and not self._stopped.is_set():
                    warned = True
                    logging.warning(
                        "%s could not copy variables to other servers for %.0f s (%s); if one is lost now, later updates are "
                        "lost, too",
                        self._name,
                        silent,
                        str(error).partition("\n")[0][:200],
                    )
            pause = self._pause(time.monotonic() - began)
