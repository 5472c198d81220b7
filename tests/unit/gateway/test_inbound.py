"""Tests which refused connections a gateway logs, with strangers that choose among the reasons."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import List

import pytest

from tests.support import certificates
from tests.support.our_logs import our_messages
from tf_strategies.gateway.greeting import ANSWER_BYTES, CHALLENGE_BYTES, Caller, Purpose, Security
from tf_strategies.gateway.inbound import Inbound
from tf_strategies.tls import read_tls

pytestmark = pytest.mark.any_line
_SECONDS = 20
_MINE = Security(b"a secret of this test's cluster", None)
_WITHOUT_SECRET = Caller(Security(b"", None), Purpose.TENSORFLOW).opening


async def _refused(address: tuple, said: bytes) -> None:
    """Returns when the gateway has closed the connection, which it does after it has logged."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(said)
    await reader.read()
    writer.close()


async def _refused_by_tls(address: tuple, security: Security, said: bytes) -> None:
    """Says something in place of TLS, after a whole greeting."""
    reader, writer = await asyncio.open_connection(*address)
    caller = Caller(security, Purpose.TENSORFLOW)
    writer.write(caller.opening)
    caller.check(await reader.readexactly(ANSWER_BYTES))
    writer.write(caller.proof(await reader.readexactly(CHALLENGE_BYTES)))
    writer.write(said)
    writer.write_eof()
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def _with_gateway(security: Security, meet) -> None:
    """Runs a function that takes the address of a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = asyncio.ensure_future(Inbound(0, security, "ps 0", None).accept(listener))
        try:
            await asyncio.wait_for(meet(listener.getsockname()), _SECONDS)
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)


def _logged(caplog: pytest.LogCaptureFixture) -> List[str]:
    prefix = "ps 0 refused a connection from 127.0.0.1: "
    lines = our_messages(caplog)
    assert all(line.startswith(prefix) for line in lines), lines
    return [line[len(prefix) :] for line in lines]


def test_a_stranger_that_varies_its_opening_hides_no_other_reason(caplog: pytest.LogCaptureFixture) -> None:
    opening = Caller(_MINE, Purpose.TENSORFLOW).opening

    async def meet(address: tuple) -> None:
        for purpose in range(100, 164):
            await _refused(address, opening[:9] + bytes([purpose]) + opening[10:])
        await _refused(address, _WITHOUT_SECRET)

    asyncio.run(_with_gateway(_MINE, meet))
    *varied, last = _logged(caplog)
    purpose = "its connection has an unknown purpose; give all tasks the same version of tf_strategies"
    assert varied == [f"{purpose} ({number} so far)" for number in (1, 2, 4, 8, 16, 32, 64)]
    assert last.startswith("this task uses a secret, and it does not;") and last.endswith(" (1 so far)")


def test_a_stranger_that_varies_how_tls_fails_hides_no_other_reason(
    caplog: pytest.LogCaptureFixture, tmp_path
) -> None:
    security = Security(b"", read_tls("tls", {"TF_STRATEGIES_TLS": certificates.make(tmp_path / "tls")}))

    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="ps").do_handshake()
    opening = hello.read()

    async def meet(address: tuple) -> None:
        for alert in range(128):
            await _refused_by_tls(address, security, opening + bytes([21, 3, 3, 0, 2, 2, alert]))
        await _refused(address, _WITHOUT_SECRET)

    asyncio.run(_with_gateway(security, meet))
    *varied, last = _logged(caplog)
    assert all(line.startswith("TLS fails") for line in varied)
    assert [line.rpartition(" (")[2] for line in varied] == [
        f"{1 << exponent} so far)" for exponent in range(8)
    ]
    assert last.startswith("this task uses TLS, and it does not;") and last.endswith(" (1 so far)")
