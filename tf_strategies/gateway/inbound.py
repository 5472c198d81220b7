"""Accepts connections of other tasks, and passes them on to TensorFlow's server, or to the process of this task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from typing import Callable, Coroutine

from tf_strategies.gateway.greeting import TICKET_BYTES, Purpose, Security
from tf_strategies.gateway.streams import (
    CHUNK_BYTES,
    GREETING_SECONDS,
    Stream,
    TlsError,
    accept_data,
    accept_stream,
    answer,
    relay,
)
from tf_strategies.refusal_counts import RefusalCounts

__all__ = ["Inbound"]

_MOST_STRANGERS = 64  # connections that have not proved themselves yet
_MOST_WARNINGS = 20
_MOST_TICKETS = 4096
_TICKET_SECONDS = 60.0
_PAUSE_SECONDS = 1.0

_log = logging.getLogger("tf_strategies")


class Inbound:
    """Serves the address of this task.

    Args:
        port: of TensorFlow's server on 127.0.0.1.
        security: of this task.
        own: the name of this task, for messages.
        hand_over: gives a connection for tensors, and its ticket, to the process of this task; None if it takes none.
    """

    def __init__(
        self,
        port: int,
        security: Security,
        own: str,
        hand_over: Callable[[socket.socket, bytes], None] | None,
    ) -> None:
        self._port, self._security, self._own, self._hand_over = port, security, own, hand_over
        self._strangers: dict[asyncio.Task[None], None] = {}  # from the oldest on
        self._relays: dict[asyncio.Task[None], None] = {}
        self._tickets: set[bytes] = set()
        self._warned: set[str] = set()
        self._refused = RefusalCounts()

    async def accept(self, listener: socket.socket) -> None:
        """Accepts connections for ever."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                opened, address = await loop.sock_accept(listener)
            except OSError as error:  # such as too many open files
                self._warn(f"cannot accept connections: {error}")
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            opened.setblocking(False)
            if len(self._strangers) >= _MOST_STRANGERS:
                self._warn(
                    f"ends the oldest of {_MOST_STRANGERS} connections that have not proved themselves"
                )
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.cancel()
            _keep(self._strangers, self._greet(opened, address[0]))

    async def _greet(self, opened: socket.socket, host: str) -> None:
        with opened:
            try:
                await asyncio.wait_for(self._serve(opened), GREETING_SECONDS)
            except asyncio.TimeoutError:
                self._warn_of_stranger(host, "it was silent")
            except TlsError as error:
                self._warn_of_stranger(host, str(error), reason="TLS")
            except (OSError, ValueError) as error:
                self._warn_of_stranger(host, str(error))

    async def _serve(self, opened: socket.socket) -> None:
        purpose = await answer(opened, self._security)
        if purpose is Purpose.DATA:
            ticket = await accept_data(opened, self._tickets)
            if self._hand_over is not None:
                self._hand_over(opened, ticket)
            return
        stream = await accept_stream(opened.dup(), self._security)
        if purpose is Purpose.TENSORFLOW:
            _keep(self._relays, self._pass_on(stream))
        else:
            stream.writer.write(self._new_ticket())
            stream.writer.close()

    def _new_ticket(self) -> bytes:
        ticket = secrets.token_bytes(TICKET_BYTES)
        if self._hand_over is not None and len(self._tickets) < _MOST_TICKETS:
            self._tickets.add(ticket)
            asyncio.get_running_loop().call_later(_TICKET_SECONDS, self._tickets.discard, ticket)
        return ticket

    async def _pass_on(self, stream: Stream) -> None:
        try:
            server = Stream(*await asyncio.open_connection("127.0.0.1", self._port, limit=CHUNK_BYTES))
        except OSError:  # TensorFlow's server has ended
            stream.writer.close()
            return
        with contextlib.suppress(OSError):
            await relay(stream, server)

    def _warn_of_stranger(self, host: str, text: str, reason: str = "") -> None:
        """Logs some of the connections that were refused for the same reason, with their number.

        Args:
            host: from which the connection came.
            text: for the log.
            reason: under which it is counted, where the other end can choose between many texts; "" for the text itself.
        """
        number = self._refused.count(reason or text, host)
        if number:
            _log.warning("%s refused a connection from %s: %s (%d so far)", self._own, host, text, number)

    def _warn(self, what: str) -> None:
        if what not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(what)
            _log.warning("%s %s", self._own, what)


def _keep(tasks: dict[asyncio.Task[None], None], work: Coroutine[None, None, None]) -> None:
    """Starts a task, and keeps it until it ends."""
    task = asyncio.ensure_future(work)
    tasks[task] = None
    task.add_done_callback(lambda ended: tasks.pop(ended, None))
