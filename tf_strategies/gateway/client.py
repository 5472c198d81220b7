"""Connects to the gateway of another task from this process."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from typing import Coroutine, TypeVar

from tf_strategies.gateway.greeting import TOKEN_BYTES, Purpose, Security
from tf_strategies.gateway.streams import open_data, open_stream

__all__ = ["open_data_connection", "reason_of_refusal"]

_Result = TypeVar("_Result")


def reason_of_refusal(address: str, security: Security) -> str:
    """Returns "" if the task at an address has a gateway that accepts this task, otherwise the reason why not.

    Args:
        address: "host:port" of TF_CONFIG.
        security: of this task.

    Raises:
        OSError: the task is not there.
    """

    async def greet() -> None:
        stream = await open_stream(address, security, Purpose.PROBE)
        stream.writer.close()

    try:
        _run(greet())
    except ValueError as error:
        return str(error)
    return ""


def open_data_connection(address: str, security: Security) -> tuple[socket.socket, bytes]:
    """Returns a connection for tensors, whose TLS has not started, and its token.

    Args:
        address: "host:port" of TF_CONFIG.
        security: of this task.

    Raises:
        OSError: the task is not there.
        ValueError: it did not prove itself. The message says why.
    """
    token = secrets.token_bytes(TOKEN_BYTES)
    return _run(open_data(address, security, token)), token


def _run(work: Coroutine[None, None, _Result]) -> _Result:
    """Runs a coroutine on a thread of its own, because a notebook runs an event loop on the main thread."""
    outcome: list[_Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="tf_strategies gateway client", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
