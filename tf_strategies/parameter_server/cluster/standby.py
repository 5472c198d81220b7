"""Keeps a copy of what a server holds on the next server, and takes it over when the server starts again.

The server is its own client for this: a session on it reads the variables by the names that the workers share, and assigns
them to variables of the next server. Nothing of it depends on the workers, whose graphs stay as they are.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Callable, Dict, Hashable, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies.cluster import Cluster, Task
from tf_strategies.errors import BootstrapError
from tf_strategies.native import ledger, ledger_core
from tf_strategies.parameter_server.cluster import heartbeat
from tf_strategies.parameter_server.cluster.protection import Protection
from tf_strategies.texts import utf8
from tf_strategies.types import JsonObject, Result, Unchecked

__all__ = ["Standby", "list_name"]

_COPY_EVERY_SECONDS = 0.7
_LEAST_PAUSE_SECONDS = 0.1
_RUN_SECONDS = 60.0
_SILENT_SECONDS = 10.0
_ASK_SECONDS = 1.5
_RETRY_SECONDS = 0.2
_STATE = "state"

Key = Tuple[str, str]
"""The ledger of a variable, and its name."""


def list_name(rank: int) -> str:
    """Returns the name of the variable in which a worker lists the variables that it uses on a server.

    Its value is JSON: {name: [dtype, shape]}.
    """
    return f"used by {rank}"


class _Kind(NamedTuple):
    """The dtype and shape of a variable, as in the lists of the workers."""

    dtype: str
    shape: Tuple[int, ...]


class Standby:
    """Copies this server to the next one every 0.7 seconds, and takes the copy over when this server starts.

    Args:
        server: the TensorFlow server of this process.
        cluster: the cluster of TF_CONFIG, with two servers or more. This process is one of them.
        protection: of this task.
    """

    def __init__(self, server: tf.distribute.Server, cluster: Cluster, protection: Protection) -> None:
        count, own = len(cluster.addresses["ps"]), cluster.task.index
        following = Task("ps", (own + 1) % count)
        self._name, self._following = cluster.name_of(cluster.task), cluster.name_of(following)
        self._address, self._through_proxy = cluster.address_of(following), protection.has_gateway
        self._here, self._there = f"/job:ps/task:{own}", f"/job:ps/task:{following.index}"
        self._container = f"copy of ps {own}"
        self._target = server.target
        self._stopped = threading.Event()
        self._finished: Dict[str, Set[int]] = {}

    def take_over(self, timeout: float) -> Optional[float]:
        """Gives this server what an earlier process of it held, before any worker connects.

        Args:
            timeout: the number of seconds to wait for the next server.

        Returns:
            When the copy was begun, in seconds since the epoch; None if the next server has no copy, as at the start of training.

        Raises:
            BootstrapError: the copy could not be read.
        """
        try:
            return self._take_over(timeout)
        except tf.errors.OpError as error:
            raise BootstrapError(
                f"{self._name} could not take its variables over from {self._following}: {error.message}; start {self._name} "
                f"again when {self._following} runs"
            ) from error

    def _take_over(self, timeout: float) -> Optional[float]:
        began, said = time.monotonic(), False
        while reason := heartbeat.error_of_request(
            self._address, _ASK_SECONDS, through_proxy=self._through_proxy
        ):
            waited = time.monotonic() - began
            if waited > _SILENT_SECONDS and not said:
                said = True
                print(f"{self._name} waits for {self._following} ({reason})", flush=True)
            if waited > timeout:
                logging.warning(
                    "%s begins without a copy: %s does not answer (%s)", self._name, self._following, reason
                )
                return None
            time.sleep(_RETRY_SECONDS)
        with self._session() as session:
            state = session.state()
            if state is None:
                return None
            for name, kept in state["ledgers"].items():
                kinds = {(name, each): _Kind(dtype, tuple(shape)) for each, dtype, shape in kept["variables"]}
                session.take_over(kinds)
                session.set_step(name, kept["step"])
                self._finished[name] = set(kept["finished"])
        return float(state["at"])

    def finished(self, name: str) -> Set[int]:
        """Returns the workers that had finished with a ledger before this process began."""
        return self._finished.get(name, set())

    def start(self) -> None:
        """Begins to copy, on a thread of its own."""
        threading.Thread(target=self._copy_until_stopped, name="tf_strategies standby", daemon=True).start()

    def stop(self) -> None:
        """Copies no more, because training has ended."""
        self._stopped.set()

    def _session(self) -> _Copier:
        return _Copier(self._target, self._here, self._there, self._container)

    def _copy_until_stopped(self) -> None:
        session: Optional[_Copier] = None
        copied = time.monotonic()
        pause, warned = _COPY_EVERY_SECONDS, False
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                session = session or self._session()
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
                        "%s could not copy its variables to %s for %.0f s (%s); if it is lost now, later updates are lost, too",
                        self._name,
                        self._following,
                        silent,
                        str(error).partition("\n")[0][:200],
                    )
            pause = max(_LEAST_PAUSE_SECONDS, _COPY_EVERY_SECONDS - (time.monotonic() - began))

    def _copy(self, session: _Copier) -> None:
        ledgers: JsonObject = {}
        at = time.time()
        for name in ledger_core.names():
            members = ledger_core.members(name)
            kinds = session.listed(name, range(len(members)))
            step = session.step(name)
            session.copy(kinds)
            finished = {rank for rank, member in enumerate(members) if member.status == "finished"}
            ledgers[name] = {
                "step": step,
                "finished": sorted(finished | self.finished(name)),
                "variables": [[key[1], kind.dtype, list(kind.shape)] for key, kind in kinds.items()],
            }
        if ledgers:
            session.set_state({"at": at, "ledgers": ledgers})


class _Copier:
    """A session that moves variables between this server and the next one.

    Args:
        target: the TensorFlow server of this process.
        here, there: the devices of the two servers.
        container: of the copies on the next server.
    """

    def __init__(self, target: str, here: str, there: str, container: str) -> None:
        self._here, self._there, self._container = here, there, container
        self._graph = tf.Graph()
        config = tf.compat.v1.ConfigProto(
            device_filters=[here, there], operation_timeout_in_ms=int(1e3 * _RUN_SECONDS)
        )
        self._session = tf.compat.v1.Session(target, graph=self._graph, config=config)
        self._options = tf.compat.v1.RunOptions(timeout_in_ms=int(1e3 * _RUN_SECONDS))
        self._made: Dict[Hashable, Unchecked] = {}

    def __enter__(self) -> _Copier:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._session.close()
        except tf.errors.OpError:
            logging.debug("a session with a lost server could not be closed")

    def listed(self, name: str, ranks: Iterable[int]) -> Dict[Key, _Kind]:
        """Returns the variables that workers use on this server, and their lists, as far as they have values."""
        text = _Kind("string", ())
        lists: Dict[Key, _Kind] = {(name, list_name(rank)): text for rank in ranks}
        found = self._with_values(lists)
        texts = self._run([self._read(key, text) for key in found])
        kinds = dict.fromkeys(found, text)
        for each in texts:
            used = json.loads(each.decode()).items()
            kinds.update({(name, variable): _Kind(dtype, tuple(shape)) for variable, (dtype, shape) in used})
        return {key: kinds[key] for key in self._with_values(kinds)}

    def copy(self, kinds: Dict[Key, _Kind]) -> None:
        """Copies variables to the next server."""
        self._run([self._move(key, kind, out=True) for key, kind in kinds.items()])

    def take_over(self, kinds: Dict[Key, _Kind]) -> None:
        """Copies variables back from the next server."""
        self._run([self._move(key, kind, out=False) for key, kind in kinds.items()])

    def step(self, name: str) -> int:
        return int(
            self._run([self._once(("step", name), lambda: self._on_here(lambda: ledger.step(name)))])[0]
        )

    def set_step(self, name: str, step: int) -> None:
        with self._graph.as_default(), tf.device(self._here):
            number = ledger.set_step(name, step)
        self._run([number])

    def state(self) -> Optional[JsonObject]:
        """Returns what `set_state` has stored last; None if nothing is stored."""
        handle = self._handle(self._there, self._container, _STATE, _Kind("string", ()))
        with self._graph.as_default(), tf.device(self._there):
            has, text = tf.raw_ops.VarIsInitializedOp(resource=handle), _read(handle, tf.string)
        if not self._run([has])[0]:
            return None
        found: JsonObject = json.loads(self._run([text])[0].decode())
        return found

    def set_state(self, state: JsonObject) -> None:
        """Stores facts about the copies that are complete now."""

        def assign() -> Tuple[tf.Tensor, tf.Operation]:
            handle = self._handle(self._there, self._container, _STATE, _Kind("string", ()))
            with tf.device(self._there):
                text = tf.compat.v1.placeholder(tf.string, [])
                return text, tf.raw_ops.AssignVariableOp(resource=handle, value=text)

        text, written = self._once((_STATE,), assign)
        self._session.run(written, {text: utf8(json.dumps(state))}, options=self._options)

    def _with_values(self, kinds: Dict[Key, _Kind]) -> List[Key]:
        def has_value(key: Key, kind: _Kind) -> tf.Tensor:
            handle = self._handle(self._here, *key, kind)
            return self._on_here(lambda: tf.raw_ops.VarIsInitializedOp(resource=handle))

        flags = [
            self._once(("has value", key, kind), lambda key=key, kind=kind: has_value(key, kind))
            for key, kind in kinds.items()
        ]
        return [key for key, has in zip(kinds, self._run(flags)) if has]

    def _read(self, key: Key, kind: _Kind) -> tf.Tensor:
        def read() -> tf.Tensor:
            handle = self._handle(self._here, *key, kind)
            return self._on_here(lambda: _read(handle, tf.as_dtype(kind.dtype)))

        return self._once(("read", key, kind), read)

    def _move(self, key: Key, kind: _Kind, *, out: bool) -> tf.Operation:
        def move() -> tf.Operation:
            own = self._handle(self._here, *key, kind)
            copy = self._handle(self._there, self._container, "/".join(key), kind)
            source, target = (own, copy) if out else (copy, own)
            devices = (self._here, self._there) if out else (self._there, self._here)
            with tf.device(devices[0]):
                value = _read(source, tf.as_dtype(kind.dtype))
            with tf.device(devices[1]):
                return tf.raw_ops.AssignVariableOp(resource=target, value=value)

        return self._once(("move", key, kind, out), move)

    def _handle(self, device: str, container: str, name: str, kind: _Kind) -> tf.Tensor:
        def handle() -> tf.Tensor:
            with tf.device(device):
                return tf.raw_ops.VarHandleOp(
                    dtype=tf.as_dtype(kind.dtype), shape=kind.shape, container=container, shared_name=name
                )

        return self._once(("handle", device, container, name, kind), handle)

    def _on_here(self, build: Callable[[], Result]) -> Result:
        with tf.device(self._here):
            return build()

    def _once(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """Returns what `make` has added to the graph when it was first called for the key."""
        if key not in self._made:
            with self._graph.as_default():
                self._made[key] = make()
        made: Result = self._made[key]
        return made

    def _run(self, fetches: Sequence[object]) -> list:
        return self._session.run(list(fetches), options=self._options) if fetches else []


def _read(handle: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
