"""Tests that the server of the control plane stands streams that send nothing, too much or the wrong secret, over real gRPC."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from typing import Any, Iterator, List

import grpc
import pytest

from tests.support.our_logs import our_messages
from tests.support.processes import ReservedPorts, wait_until
from tf_strategies.control_plane import remote_link, stream_handshake
from tf_strategies.control_plane.server import METHOD, SERVICE, ControlServer

pytestmark = pytest.mark.any_line

SECRET = b"a secret of this test's cluster"
_SECONDS = 20
_UNHANDLED = 16  # the messages of one stream that the server hands on before they are handled


class Posted:
    """Keeps what the server hands on, and counts what is not handled yet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.messages: List[Any] = []
        self.streams: List[Any] = []
        self.unhandled = self.most_unhandled = 0

    def __call__(self, stream: Any, message: Any) -> None:
        with self.lock:
            if message is not None:
                self.messages.append(message)
                self.streams.append(stream)
                self.unhandled += 1
                self.most_unhandled = max(self.most_unhandled, self.unhandled)

    def handle(self, number: int) -> None:
        with self.lock:
            self.unhandled -= 1
        self.streams[number].handled()


@pytest.fixture
def posted() -> Posted:
    return Posted()


@pytest.fixture
def address(posted: Posted) -> Iterator[str]:
    with ReservedPorts(1) as ports:
        server = ControlServer("worker 0", ports.addresses[0], 2, SECRET, posted)
        yield ports.addresses[0]
        server.stop()


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    with contextlib.closing(grpc.insecure_channel(f"ipv4:{address}")) as opened:
        yield opened


def join(channel: grpc.Channel) -> Any:
    """Opens a stream; returns the queue of what it sends, as JSON, and the call, which ends when nobody refers to it."""
    outgoing: queue.SimpleQueue = queue.SimpleQueue()
    answers: queue.SimpleQueue = queue.SimpleQueue()
    connecting = stream_handshake.connect(SECRET)

    def requests() -> Iterator[bytes]:
        first = outgoing.get()
        yield connecting.opening
        proof, session = stream_handshake.answer(connecting, SECRET, answers.get())
        yield proof
        while True:
            yield session.seal(json.dumps(first).encode())
            first = outgoing.get()

    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(requests())

    def read() -> None:
        with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):
            for answer in call:
                answers.put(answer)

    threading.Thread(target=read, daemon=True).start()
    return outgoing, call


def test_a_stream_that_floods_waits_until_its_messages_are_handled(
    channel: grpc.Channel, posted: Posted
) -> None:
    outgoing, call = join(channel)
    for number in range(500):
        outgoing.put({"type": "waiting", "number": number})
    wait_until(lambda: len(posted.messages) == _UNHANDLED, _SECONDS, "as many messages as may be unhandled")
    for number in range(500):
        wait_until(lambda: len(posted.messages) > number, _SECONDS, f"message {number}")
        posted.handle(number)
    assert posted.most_unhandled == _UNHANDLED
    assert [each["number"] for each in posted.messages] == list(range(500))
    assert call.is_active()


def test_silent_streams_hold_no_place(channel: grpc.Channel, posted: Posted) -> None:
    silent = [join(channel)[1] for _ in range(60)]
    started = time.monotonic()
    outgoing, call = join(channel)
    outgoing.put({"type": "hello"})
    wait_until(lambda: posted.messages, 5, "the hello of a member")
    assert time.monotonic() - started < 5
    assert call.is_active()
    wait_until(lambda: sum(each.done() for each in silent) >= 60 - 18, 5, "the end of the oldest streams")


def refusals(caplog: pytest.LogCaptureFixture) -> List[str]:
    return [each for each in our_messages(caplog) if "refused a connection" in each]


def test_a_frequent_reason_of_refusals_hides_no_other(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(secret: bytes) -> None:
        """Returns when the server has ended the stream, which it does after it has logged."""
        said = [stream_handshake.connect(secret).opening, bytes(32)]
        assert len(list(channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter(said), timeout=_SECONDS))) == 1

    for _ in range(2):  # these are the 1st and 2nd of all
        refused(b"another secret")
    stream = channel.stream_stream(f"/{SERVICE}/{METHOD}")
    none = iter([stream_handshake.connect(b"").opening])
    assert len(list(stream(none, timeout=_SECONDS))) == 1
    refused(b"another secret")
    refused(b"another secret")
    found = refusals(caplog)
    wrong, missing = "it does not know the secret of this cluster", "this task has a secret, and it has none"
    assert [reason in line for reason, line in zip((wrong, wrong, missing, wrong), found)] == [True] * 4
    assert [line.rpartition(" (")[2] for line in found] == [f"{number} so far)" for number in (1, 2, 1, 4)]


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (b"", "this task has a secret, and it has none"),
        (b"another", "it does not accept the secret of this task"),
    ],
)
def test_every_member_that_distrusts_the_server_is_counted(
    secret: bytes,
    reason: str,
    address: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_link, "_PARTING_SECONDS", _SECONDS)
    for _ in range(32):
        closed = threading.Event()
        link = remote_link.RemoteLink(
            address, secret, lambda *_: None, lambda *_, closed=closed: closed.set()
        )
        assert closed.wait(_SECONDS)
        link.close()
    assert reason in refusals(caplog)[-1] and refusals(caplog)[-1].endswith(" (32 so far)")
