"""Serves metrics over HTTP."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import weakref
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = ["MetricsServer"]

_STOP_SECONDS = 0.1  # that stopping waits at most


class MetricsServer:
    """Serves an application, until it is closed or deleted. Each request has a thread.

    Args:
        application: makes the answers. It may be called on several threads.
        host: the address to listen on.
        port: the port to listen on.

    Raises:
        OSError: the server cannot listen there.
    """

    def __init__(self, application: WSGIApplication, host: str, port: int) -> None:
        self._server = _Server(application, host, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_STOP_SECONDS,),
            name="tf_strategies metrics",
            daemon=True,
        )
        self._thread.start()
        self._abandoned = weakref.finalize(self, _stop_elsewhere, self._server, self._thread)
        self._abandoned.atexit = False

    def close(self) -> None:
        """Stops the server. It may be called again."""
        if self._abandoned.detach() is not None:
            _stop(self._server, self._thread)


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds that a client has to send its request

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or has taken too long
            super().handle()

    def log_message(self, format: str, *values: object) -> None:
        """Writes nothing: Prometheus asks every few seconds."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_port = (
        False  # some Pythons allow it, and the kernel would divide requests between two servers
    )

    def __init__(self, application: WSGIApplication, host: str, port: int) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self.set_app(application)

    def server_bind(self) -> None:
        """Binds the socket, without the look-up of the host's name that `HTTPServer` does, which can take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def _stop(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()


def _stop_elsewhere(server: WSGIServer, thread: threading.Thread) -> None:
    """Stops a server on another thread, because the garbage collector may run on one that stopping waits for."""
    threading.Thread(target=_stop, args=(server, thread), name="tf_strategies metrics", daemon=True).start()
