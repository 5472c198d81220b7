"""Tells the first task of a cluster that a group trains of which it may not know.

A task that starts again with the TF_CONFIG of the first group knows the workers of that time. If none of these trains any more,
it does not find the group, and would begin from the start with the others of its list. It would meet them at the address of the
first task. So rank 0 of a group without the first task looks there.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from tf_strategies.addresses import split_address
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.tls import TlsFiles

__all__ = ["Herald"]

_EVERY_SECONDS = 0.5  # less than a first group listens before it begins: coordinator/joining.py
_MOST_SECONDS = 10.0  # where somebody listens who does not answer
_PROBE_SECONDS = 1.0
_TELL_SECONDS = 2.0
_STEP_SECONDS = 0.05
_STOP_SECONDS = 1.0


class Herald:
    """Sends a message to an address whenever somebody listens there, on a thread of its own, until it is stopped.

    Args:
        address: "host:port" of TF_CONFIG.
        message: the message.
        secret: of the cluster, or b"".
        tls: the certificate of this task, or None.
    """

    def __init__(self, address: str, message: Message, secret: bytes, tls: TlsFiles | None) -> None:
        self._address, self._message, self._secret, self._tls = address, message, secret, tls
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tf_strategies herald", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for it for a limited time."""
        self._stopped.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        pause = _EVERY_SECONDS
        while not self._stopped.wait(pause):
            answers = True
            with contextlib.suppress(OSError):
                socket.create_connection(split_address(self._address), timeout=_PROBE_SECONDS).close()
                answers = self._stopped.is_set() or self._tell()
            pause = _EVERY_SECONDS if answers else min(2 * pause, _MOST_SECONDS)

    def _tell(self) -> bool:
        """Sends the message. Returns True if the other end has closed the connection, as it does when it has the message."""
        ended, until = threading.Event(), time.monotonic() + _TELL_SECONDS
        link = RemoteLink(
            self._address,
            self._secret,
            lambda link, message: None,
            lambda link, reason: ended.set(),
            self._tls,
        )
        try:
            link.send(self._message)
            while not self._stopped.is_set() and time.monotonic() < until:
                if ended.wait(_STEP_SECONDS):
                    return True
            return False
        finally:
            link.close()
