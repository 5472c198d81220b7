"""Creates the sessions in which Estimator trains on servers.

The chief's session initializes or restores the variables; others wait for it.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Optional

import tensorflow as tf

from tf_strategies.errors import BootstrapError
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.errors import ServerLostError
from tf_strategies.session_graphs.coordinator import CarriedError
from tf_strategies.types import Structure

__all__ = ["session_creator"]

_LOOK_EVERY_SECONDS = 0.2
_ASK_SERVERS_EVERY_SECONDS = 5.0


def session_creator(
    servers: Servers,
    scaffold: tf.compat.v1.train.Scaffold,
    *,
    config: Optional[tf.compat.v1.ConfigProto] = None,
    checkpoint_dir: Optional[str] = None,
    **others: Any,
) -> tf.compat.v1.train.SessionCreator:
    """Makes this worker's sessions.

    Args:
        servers: the servers that hold the variables.
        scaffold: the scaffold of the graph.
        config: the configuration of the sessions.
        checkpoint_dir: the folder from which the chief restores.
        others: further arguments of ChiefSessionCreator.
    """
    others.pop("max_wait_secs", None)  # the timeout of the strategy applies instead
    _have_chief_save(scaffold)
    if servers.rank:
        return _Followers(servers, scaffold, config)
    chiefs = tf.compat.v1.train.ChiefSessionCreator(
        scaffold, master=servers.session_target, config=config, checkpoint_dir=checkpoint_dir, **others
    )
    return _Chiefs(servers, chiefs)


def _have_chief_save(scaffold: tf.compat.v1.train.Scaffold) -> None:
    """Makes the chief save. With Estimator's saver each server would write its own file, on its own machine."""
    for saver in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS) if scaffold.saver is None else ():
        if saver.saver_def is None:
            saver._sharded = False


class _Chiefs(tf.compat.v1.train.SessionCreator):
    def __init__(self, servers: Servers, creator: tf.compat.v1.train.SessionCreator) -> None:
        self._servers = servers
        self._creator = creator

    def create_session(self) -> tf.compat.v1.Session:
        _require_all(self._servers)
        return _watched(self._creator.create_session(), self._servers)


class _Followers(tf.compat.v1.train.SessionCreator):
    def __init__(
        self,
        servers: Servers,
        scaffold: tf.compat.v1.train.Scaffold,
        config: Optional[tf.compat.v1.ConfigProto],
    ) -> None:
        self._servers = servers
        self._scaffold = scaffold
        self._config = config

    def create_session(self) -> tf.compat.v1.Session:
        self._scaffold.finalize()
        manager = tf.compat.v1.train.SessionManager(
            local_init_op=self._scaffold.local_init_op,
            ready_op=self._scaffold.ready_op,
            ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
            graph=tf.compat.v1.get_default_graph(),
            recovery_wait_secs=_LOOK_EVERY_SECONDS,
        )
        deadline = time.monotonic() + self._servers.timeout
        while True:
            _require_all(self._servers)
            try:
                session = manager.wait_for_session(
                    self._servers.session_target,
                    config=self._config,
                    max_wait_secs=_ASK_SERVERS_EVERY_SECONDS,
                )
                return _watched(session, self._servers)
            except tf.errors.DeadlineExceededError as error:
                if time.monotonic() > deadline:
                    raise BootstrapError(
                        f"{self._servers.name_of_worker(self._servers.rank)} waited {self._servers.timeout:g} s for "
                        f"{self._servers.name_of_worker(0)} to initialize or restore the variables ({error.message}); look at "
                        "that worker's log, and check that all workers run the same script"
                    ) from None


def _watched(session: tf.compat.v1.Session, servers: Servers) -> tf.compat.v1.Session:
    """Returns the session, changed so that it does not wait for a lost server.

    It waits neither for an answer of the server nor for the connection to close.
    """
    run, close = session.run, session.close

    def run_with_all(*args: Any, **kwargs: Any) -> Structure:
        try:
            return run(*args, **kwargs)
        except (tf.errors.UnavailableError, tf.errors.AbortedError):
            _require_all(servers)
            raise

    def close_with_all() -> None:
        with contextlib.suppress(ServerLostError):
            servers.require_all()
            close()

    session.run, session.close = run_with_all, close_with_all
    return session


def _require_all(servers: Servers) -> None:
    """Raises if a server is lost. Otherwise sessions would be made again and again, and wait for it."""
    try:
        servers.require_all()
    except ServerLostError as error:
        raise CarriedError(error) from None
