"""Connects to one other task, on its address and on its data port, until that succeeds or the time is over."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Awaitable, Callable, Tuple, TypeVar

from tf_strategies.doctor.facts.names import places_of
from tf_strategies.doctor.link import Link, LinkError, connect
from tf_strategies.doctor.measuring import send_large

__all__ = ["FINAL", "exchange_large", "open_link", "round_trips", "until_it_works"]

_RETRY_SECONDS = 0.3
_RESOLVE_SECONDS = 5.0
_PINGS = 8
_PONG_SECONDS = 3.0
_STALL_SECONDS = 1.0
# Time does not change these. A stranger may be an earlier run that is ending.
FINAL = {"secret": 1, "wrong_task": 1, "twin": 1, "stranger": 3}

_Result = TypeVar("_Result")


async def open_link(host: str, port: int, secret: bytes, *, segment: int = 0) -> Link:
    """Returns a connection to the doctor of a host and port.

    Args:
        host, port: the place.
        secret: of the cluster; empty if there is none.
        segment: as in `link.connect`.

    Raises:
        LinkError: there is none.
    """
    loop = asyncio.get_running_loop()
    try:
        resolving = loop.run_in_executor(None, functools.partial(places_of, host, port))
        places = await asyncio.wait_for(resolving, _RESOLVE_SECONDS)
    except asyncio.TimeoutError:
        raise LinkError("unresolved", f"{host} does not resolve within {_RESOLVE_SECONDS:g} s") from None
    except OSError as error:
        raise LinkError("unresolved", f"{host} does not resolve: {error.strerror or error}") from None
    failure = LinkError("unresolved", f"{host} has no address")
    for number, place in enumerate(places):
        try:
            return await connect(place, secret, segment=segment)
        except LinkError as error:
            failure = error if number == 0 else failure
    raise failure


async def until_it_works(attempt: Callable[[], Awaitable[_Result]], until: float) -> _Result:
    """Returns the result of the first attempt that succeeds.

    Args:
        attempt: raises LinkError.
        until: time.monotonic() after which no attempt begins.

    Raises:
        LinkError: of the last attempt.
    """
    finals = 0
    while True:
        try:
            return await attempt()
        except LinkError as failure:
            finals = finals + 1 if failure.kind in FINAL else 0
            if finals and finals >= FINAL[failure.kind]:
                raise
            if time.monotonic() + _RETRY_SECONDS > until:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


async def exchange_large(open_data: Callable[[], Awaitable[Link]]) -> str:
    """Returns the outcome of `measuring.send_large`.

    A second attempt that succeeds at once outweighs a first one that did not. One that takes long does not: some hosts find a
    smaller size after several losses.

    Args:
        open_data: opens a connection for data; raises LinkError.
    """
    before = ""
    while True:
        link = await open_data()
        start = time.monotonic()
        try:
            outcome = await send_large(link)
        finally:
            link.close()
        if outcome == "ok" and before and time.monotonic() - start > _STALL_SECONDS:
            return before
        if outcome == "ok" or before:
            return outcome
        before = outcome


async def round_trips(
    ask: Callable[[], Awaitable[None]], answers: asyncio.Queue[Tuple[float, float]]
) -> Tuple[float, float]:
    """Returns the least round trip and the offset of the other clock, in seconds.

    Args:
        ask: sends a question; raises LinkError.
        answers: (this clock, the other clock) at each answer.

    Raises:
        LinkError: no answer came.
    """
    best = (float("inf"), 0.0)
    for _ in range(_PINGS):
        # The clocks that logs and certificates use; a step in between gives a long trip, which another beats.
        sent, start = time.time(), time.perf_counter()
        await ask()
        try:
            received, theirs = await asyncio.wait_for(answers.get(), _PONG_SECONDS)
        except asyncio.TimeoutError:
            raise LinkError("mute", f"it does not answer within {_PONG_SECONDS:g} s") from None
        best = min(best, (time.perf_counter() - start, theirs - (sent + received) / 2))
    return best
