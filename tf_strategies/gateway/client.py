"""Connects to the gateway of another task from this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Coroutine, TypeVar

from tf_strategies.gateway.greeting import Security
from tf_strategies.gateway.streams import GREETING_SECONDS, fetch_ticket, open_data

__all__ = ["open_data_connection", "reason_of_refusal"]

_MOST_SECONDS = 3 * GREETING_SECONDS  # for the greetings of a call, and to resolve names

_Result = TypeVar("_Result")


def reason_of_refusal(address: str, security: Security) -> str:
    """Returns "" if the task at an address has a gateway that accepts this task, otherwise the reason why not.

    Args:
        address: "host:port" of TF_CONFIG.
        security: of this task.

    Raises:
        OSError: the task is not there.
    """
    try:
        _run(fetch_ticket(address, security))
    except ValueError as error:
        return str(error)
    return ""


def open_data_connection(address: str, security: Security) -> tuple[socket.socket, bytes]:
    """Returns a connection for tensors, whose TLS has not started, and the ticket that identifies it.

    Args:
        address: "host:port" of TF_CONFIG.
        security: of this task.

    Raises:
        OSError: the task is not there.
        ValueError: it did not prove itself. The message says why.
    """

    async def connect() -> tuple[socket.socket, bytes]:
        ticket = await fetch_ticket(address, security)
        return await open_data(address, security, ticket), ticket

    return _run(connect())


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
    thread.join(_MOST_SECONDS)
    if failure:
        raise failure[0]
    if not outcome:
        raise ConnectionError(f"it did not answer within {_MOST_SECONDS:g} s")
    return outcome[0]
