"""Starts the gateway of this task."""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Callable, Sequence

from tf_strategies.addresses import split_address
from tf_strategies.errors import BootstrapError

__all__ = ["NO_PROXY", "PROXY", "Gateway"]

PROXY, NO_PROXY = "grpc_proxy", "no_grpc_proxy"  # the environment variables of gRPC
_START_SECONDS = 60.0
_MOST_MESSAGE = 1 << 20
_BACKLOG = 128
# `python -m` would put the working directory first on the path, where anybody may have written modules.
_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); from tf_strategies.gateway.main import main; main()"
)

_log = logging.getLogger("tf_strategies")


class Gateway:
    """Is the gateway of this task. It ends with this process. gRPC in this process goes through it from now on.

    Args:
        name: of this task, for messages.
        addresses: "host:port" of all tasks.
        take: is called for each connection for tensors, on a thread of its own, with the ticket and the descriptor, which it
            owns; None if this task takes none.

    Raises:
        BootstrapError: the gateway could not be started.
    """

    def __init__(
        self, name: str, addresses: Sequence[str], take: Callable[[bytes, int], None] | None = None
    ) -> None:
        self._name, self._take = name, take
        self._closed = False
        self._before = {variable: os.environ.get(variable) for variable in (PROXY, NO_PROXY)}
        self._process: subprocess.Popen[bytes] | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(None)
        try:
            with theirs:
                self._process = _start(theirs.fileno())
            port = self._begin(addresses)
        except OSError as error:
            self.close()
            raise BootstrapError(f"{name} could not start its gateway: {error.strerror or error}") from error
        os.environ[PROXY] = f"http://127.0.0.1:{port}"
        os.environ[NO_PROXY] = "no.proxy.invalid"  # else gRPC heeds no_proxy, which may name the tasks
        threading.Thread(target=self._listen, name="tf_strategies gateway", daemon=True).start()

    def accept_at(self, address: str) -> None:
        """Accepts connections at the address of this task, for TensorFlow's server on the same port of the loopback interface.

        Raises:
            BootstrapError: the address cannot be used, or the gateway has ended.
        """
        host, port = split_address(address)
        try:
            listener = _listener(host, port)
        except OSError as error:
            raise BootstrapError(
                f"{self._name} cannot listen on {address}: {error.strerror or error}; check that the address belongs to this "
                "machine, and that no other process listens on it"
            ) from error
        order = json.dumps({"port": port, "takes_tensors": self._take is not None}).encode()
        try:
            with listener:
                socket.send_fds(self._control, [order], [listener.fileno()])
        except OSError as error:
            raise BootstrapError(
                f"the gateway of {self._name} has ended; look at the messages above"
            ) from error

    def close(self) -> None:
        """Ends the gateway. gRPC in this process does without it again."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._control.close()
        for variable, value in self._before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value

    def _begin(self, addresses: Sequence[str]) -> int:
        """Tells the gateway about the cluster. Returns the port of its proxy."""
        self._control.send(json.dumps({"name": self._name, "addresses": list(addresses)}).encode())
        if not select.select([self._control], [], [], _START_SECONDS)[0]:
            raise OSError(f"it did not answer within {_START_SECONDS:g} s")
        answer = self._control.recv(_MOST_MESSAGE)
        if not answer:
            raise OSError("it ended; look at its messages above")
        return int(json.loads(answer)["port"])

    def _listen(self) -> None:
        """Takes connections for tensors until the gateway ends."""
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self._control, _MOST_MESSAGE, 1)
            except OSError:
                message = b""
            if not message:
                break
            if self._take is None or not descriptors:
                _log.warning("%s lost a data connection: it has too many open files", self._name)
                continue
            self._take(bytes.fromhex(json.loads(message)["ticket"]), descriptors[0])
        if not self._closed:
            _log.error("the gateway of %s has ended: other tasks cannot reach it any more", self._name)


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(descriptor)],
        pass_fds=[descriptor],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
    )


def _listener(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address beside TensorFlow's server, which has the port on all interfaces.

    A host that is an address of no interface, such as that of a Kubernetes service, stands for all of them. So does a name
    that means this machine only here, such as a Debian host's own name, 127.0.1.1.
    """
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    if host != place[0] and ipaddress.ip_address(place[0]).is_loopback:
        place = ("", port)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind(place)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listener.bind(("", port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
