"""Accepts connections: a stranger costs one descriptor for some seconds, and there is a limit for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Awaitable, Callable, Set

from tf_strategies.doctor.link import Link, LinkError, accept

__all__ = ["Callers"]

_MOST_STRANGERS = 64
_TIMES = 4  # as many connections in all; without a secret everybody proves himself
_PAUSE_SECONDS = 0.1


class Callers:
    """The connections that others have opened.

    Args:
        expected: connections of other tasks at a time that have not proved anything yet.
    """

    def __init__(self, expected: int) -> None:
        self._most = expected + _MOST_STRANGERS
        self._strangers = 0
        self._tasks: Set[asyncio.Task[None]] = set()

    def serve(
        self, listener: socket.socket, secret: bytes, welcome: Callable[[Link], Awaitable[None]]
    ) -> None:
        """Starts to accept connections of a socket.

        Args:
            listener: does not block.
            secret: of the cluster; empty if there is none.
            welcome: serves a connection that has proved itself; the connection is closed afterwards.
        """
        self._keep(self._accept(listener, secret, welcome))

    def close(self) -> None:
        """Ends all of them."""
        for each in self._tasks:
            each.cancel()

    def _keep(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(
        self, listener: socket.socket, secret: bytes, welcome: Callable[[Link], Awaitable[None]]
    ) -> None:
        while True:
            try:
                opened, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # the peer has gone again, or there is no descriptor left
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._strangers >= self._most or len(self._tasks) >= _TIMES * self._most:
                opened.close()
            else:
                self._keep(self._serve(opened, secret, welcome))

    async def _serve(
        self, opened: socket.socket, secret: bytes, welcome: Callable[[Link], Awaitable[None]]
    ) -> None:
        with opened, contextlib.suppress(LinkError, OSError, asyncio.TimeoutError):
            self._strangers += 1
            try:
                link = await accept(opened, secret)
            finally:
                self._strangers -= 1
            await welcome(link)
