"""Accepts connections of other tasks, and passes them on to TensorFlow's server, or to the process of this task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Callable, Coroutine

from tf_strategies.gateway.greeting import Purpose, Security
from tf_strategies.gateway.streams import (
    CHUNK_BYTES,
    GREETING_SECONDS,
    Stream,
    accept_data,
    accept_stream,
    answer,
    relay,
)

__all__ = ["Inbound"]

_MOST_STRANGERS = 64  # connections that have not proved themselves yet
_MOST_WARNINGS = 20

_log = logging.getLogger("tf_strategies")


class Inbound:
    """Serves the address of this task.

    Args:
        port: of TensorFlow's server on 127.0.0.1.
        security: of this task.
        own: the name of this task, for messages.
        hand_over: gives a connection for tensors, and its token, to the process of this task.
    """

    def __init__(
        self, port: int, security: Security, own: str, hand_over: Callable[[socket.socket, bytes], None]
    ) -> None:
        self._port, self._security, self._own, self._hand_over = port, security, own, hand_over
        self._strangers: set[asyncio.Task[None]] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._warned: set[str] = set()

    async def accept(self, listener: socket.socket) -> None:
        """Accepts connections for ever."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                opened, address = await loop.sock_accept(listener)
            except OSError as error:  # such as too many open files
                _log.warning("%s cannot accept connections: %s", self._own, error)
                await asyncio.sleep(1)
                continue
            opened.setblocking(False)
            if len(self._strangers) < _MOST_STRANGERS:
                _keep(self._strangers, self._greet(opened, address[0]))
            else:
                opened.close()

    async def _greet(self, opened: socket.socket, host: str) -> None:
        with opened:
            try:
                await asyncio.wait_for(self._serve(opened), GREETING_SECONDS)
            except asyncio.TimeoutError:
                self._warn(host, "it was silent")
            except (OSError, ValueError) as error:
                self._warn(host, str(error))

    async def _serve(self, opened: socket.socket) -> None:
        purpose = await answer(opened, self._security)
        if purpose is Purpose.DATA:
            token = await accept_data(opened)
            self._hand_over(opened, token)
            return
        stream = await accept_stream(opened.dup(), self._security)
        if purpose is Purpose.TENSORFLOW:
            _keep(self._relays, self._pass_on(stream))
        else:
            stream.writer.close()

    async def _pass_on(self, stream: Stream) -> None:
        try:
            server = Stream(*await asyncio.open_connection("127.0.0.1", self._port, limit=CHUNK_BYTES))
        except OSError:  # TensorFlow's server has ended
            stream.writer.close()
            return
        with contextlib.suppress(OSError):
            await relay(stream, server)

    def _warn(self, host: str, reason: str) -> None:
        refused = f"{host}: {reason}"
        if refused not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(refused)
            _log.warning("%s refused a connection from %s", self._own, refused)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> None:
    """Starts a task, and keeps it until it ends."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
