"""Starts the gateway of this task."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import subprocess
import sys
import threading
from typing import Callable, Sequence

from tf_strategies.addresses import split_address
from tf_strategies.errors import BootstrapError

__all__ = ["NO_PROXY", "PROXY", "Gateway"]

PROXY, NO_PROXY = "grpc_proxy", "no_grpc_proxy"  # the environment variables of gRPC
_START_SECONDS = 60.0
_MOST_MESSAGE = 1 << 20
_BACKLOG = 128


class Gateway:
    """Is the gateway of this task. It ends with this process. gRPC in this process goes through it from now on.

    Args:
        name: of this task, for messages.
        addresses: "host:port" of all tasks.

    Raises:
        BootstrapError: the gateway could not be started.
    """

    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        self._name = name
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            environ = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tf_strategies.gateway", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environ,
                stdin=subprocess.DEVNULL,
            )
        self._control.send(json.dumps({"name": name, "addresses": list(addresses)}).encode())
        answer = b""
        if select.select([self._control], [], [], _START_SECONDS)[0]:
            answer = self._control.recv(_MOST_MESSAGE)
        if not answer:
            self.close()
            raise BootstrapError(
                f"{name} could not start its gateway ({sys.executable} -m tf_strategies.gateway): it did not answer within "
                f"{_START_SECONDS:g} s, or ended; look at its messages above"
            )
        os.environ[PROXY] = f"http://127.0.0.1:{json.loads(answer)['port']}"
        os.environ[NO_PROXY] = "no.proxy.invalid"  # else gRPC heeds no_proxy, which may name the tasks

    def accept_at(self, address: str) -> None:
        """Accepts connections at the address of this task, for TensorFlow's server on the same port of the loopback interface.

        Raises:
            BootstrapError: the address cannot be used.
        """
        host, port = split_address(address)
        try:
            with _listen(host, port) as listener:
                socket.send_fds(self._control, [json.dumps({"port": port}).encode()], [listener.fileno()])
        except OSError as error:
            raise BootstrapError(
                f"{self._name} cannot listen on {address}: {error.strerror or error}; check that the address belongs to this "
                "machine, and that no other process listens on it"
            ) from error

    def take_data_connections(self, take: Callable[[bytes, int], None]) -> None:
        """Calls a function for each connection for tensors, on a thread of its own, from now on.

        Args:
            take: is called with the token and the descriptor of the connection, which it owns.
        """

        def run() -> None:
            while True:
                try:
                    message, descriptors, _, _ = socket.recv_fds(self._control, _MOST_MESSAGE, 1)
                except OSError:
                    return
                if not message:
                    return
                take(bytes.fromhex(json.loads(message)["token"]), descriptors[0])

        threading.Thread(target=run, name="tf_strategies data connections", daemon=True).start()

    def close(self) -> None:
        """Ends the gateway."""
        self._control.close()
        self._process.kill()
        self._process.wait()


def _listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address beside TensorFlow's server, which has the port on all interfaces.

    A host that is an address of no interface, such as that of a Kubernetes service, stands for all of them.
    """
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
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
