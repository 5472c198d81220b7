"""Tells rank 0 why a worker cannot join, where TLS keeps the two from talking.

A worker that gives up listens on its own address of TF_CONFIG for two seconds, and says why to whoever connects. Rank 0 connects
to the workers that are missing while its group forms. A notice proves only that it comes from a worker's address. It can end a
group that is forming, which would not form without that worker, and it can do nothing else.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import Callable, Mapping

from tf_strategies.addresses import split_address
from tf_strategies.name_lookup import look_up

__all__ = ["NoticeWatch", "give_notice"]

_MAGIC = b"TFSWHY01 "
_MOST_BYTES = 600
_GIVE_SECONDS = 2.0
_FIRST_SECONDS = 5.0  # no worker gives up earlier, and most groups have formed
_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.4


def give_notice(address: str, text: str, seconds: float = _GIVE_SECONDS) -> bool:
    """Says one line to the first that connects to an address of this task. Returns whether somebody came in time.

    Args:
        address: "host:port" of TF_CONFIG. Nothing is said if it cannot be listened on.
        text: the line.
        seconds: to wait.
    """
    host, port = split_address(address)
    try:
        family, kind, protocol, _, place = look_up(host, port)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(4)
            listener.settimeout(seconds)
            with listener.accept()[0] as opened:
                opened.settimeout(1.0)
                opened.sendall(
                    _MAGIC + " ".join(text.split()).encode("ascii", "replace")[:_MOST_BYTES] + b"\n"
                )
                return True
    except OSError:
        return False


class NoticeWatch:
    """Looks for notices on a thread of its own, from some seconds after the start until it is stopped.

    Args:
        addresses: "host:port" by rank.
        on_notice: called with a rank and its line, on that thread.
        first_after: the seconds before it looks for the first time.
    """

    def __init__(
        self,
        addresses: Mapping[int, str],
        on_notice: Callable[[int, str], None],
        first_after: float = _FIRST_SECONDS,
    ) -> None:
        self._addresses, self._on_notice, self._first_after = addresses, on_notice, first_after
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tf_strategies notices", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; bounded."""
        self._stopped.set()
        self._thread.join(2 * _LOOK_SECONDS)

    def _run(self) -> None:
        pause = self._first_after
        while not self._stopped.wait(pause):
            pause = _PAUSE_SECONDS
            for rank, text in _look(self._addresses, self._stopped).items():
                self._on_notice(rank, text)


def _look(addresses: Mapping[int, str], stopped: threading.Event) -> dict[int, str]:
    """Returns the lines that are said at addresses now, by rank."""
    heard: dict[int, bytes] = {}
    with contextlib.ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        for rank, address in addresses.items():
            with contextlib.suppress(OSError):
                opened = held.enter_context(_begin(address))
                selector.register(opened, selectors.EVENT_READ, rank)
        until = time.monotonic() + _LOOK_SECONDS
        while selector.get_map() and time.monotonic() < until and not stopped.is_set():
            for key, _ in selector.select(0.05):
                data = b""
                with contextlib.suppress(OSError):
                    data = key.fileobj.recv(_MOST_BYTES)  # type: ignore[union-attr]
                heard[key.data] = (heard.get(key.data, b"") + data)[: len(_MAGIC) + _MOST_BYTES]
                if not data or data.endswith(b"\n") or not _MAGIC.startswith(heard[key.data][: len(_MAGIC)]):
                    selector.unregister(key.fileobj)
    return {rank: _line(said) for rank, said in heard.items() if said.startswith(_MAGIC)}


def _begin(address: str) -> socket.socket:
    family, kind, protocol, _, place = look_up(*split_address(address))[0]
    opened = socket.socket(family, kind, protocol)
    opened.setblocking(False)
    opened.connect_ex(place)
    return opened


def _line(said: bytes) -> str:
    """Returns a line that somebody else has said, without what a terminal would take for a command."""
    text = said[len(_MAGIC) :].partition(b"\n")[0].decode("ascii", "replace")
    return "".join(each if each.isprintable() else "?" for each in text)
