"""Confines TensorFlow's server of this process to the loopback interface, by the C function of ops/confine/c_api.h."""

from __future__ import annotations

import ctypes
import threading

from tf_strategies.errors import BootstrapError, Code
from tf_strategies.native import c_text, loader

__all__ = ["Confinement"]

_MOST_SECONDS = 3600.0  # that starting the server may take
_SHUT_SECONDS = 0.2  # in which the server accepts what has connected before


class Confinement:
    """Confines the sockets that listen on a port, as soon as they do, on a thread that does not hold Python's lock.

    Connections that other hosts had completed before are shut down. Other sockets of this user may listen on the port later.

    Args:
        port: of the server, which starts after this.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._core = loader.core()
        self._core.tfs_last_error.restype = ctypes.c_int64
        self._stop = ctypes.c_ubyte(0)
        self._code, self._reason = 0, ""
        self._thread = threading.Thread(target=self._confine, name="tf_strategies confinement", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Returns "" if the server, which has started, is confined now, otherwise the reason why the kernel does not allow it.

        Raises:
            BootstrapError: no socket of this process listens on the port.
        """
        self.cancel()
        self._confine()  # with what listens by now
        self._core.tfs_shut_connections_from_elsewhere(self._port, ctypes.c_double(_SHUT_SECONDS))
        if self._code == Code.FAILED_PRECONDITION:
            return self._reason
        if self._code:
            raise BootstrapError(f"TensorFlow's server cannot be confined to this host: {self._reason}")
        return ""

    def cancel(self) -> None:
        """Stops waiting for the server."""
        self._stop.value = 1
        self._thread.join()

    def _confine(self) -> None:
        self._code = self._core.tfs_confine_to_loopback(
            self._port, ctypes.c_double(_MOST_SECONDS), ctypes.byref(self._stop)
        )
        if self._code:
            self._reason = (c_text.read(self._core.tfs_last_error) or b"").decode(errors="replace")
