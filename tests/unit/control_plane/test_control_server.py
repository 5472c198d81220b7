"""What a server of the control plane bears: streams that say nothing, and streams that say too much. Real gRPC on loopback."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from typing import Any, Iterator, List

import grpc
import pytest

from tests.support.processes import ReservedPorts, wait_until
from tf_strategies.control_plane.server import METHOD, SERVICE, ControlServer

pytestmark = pytest.mark.any_line

_SECONDS = 20
_PATIENCE = 1.0  # in which whatever is not held back would have come


class Posted:
    """Keeps what the server hands on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.messages: List[Any] = []
        self.streams: List[Any] = []

    def __call__(self, stream: Any, message: Any) -> None:
        with self.lock:
            if message is not None:
                self.messages.append(message)
                self.streams.append(stream)


@pytest.fixture
def posted() -> Posted:
    return Posted()


@pytest.fixture
def channel(posted: Posted) -> Iterator[grpc.Channel]:
    with ReservedPorts(1) as ports:
        server = ControlServer("worker 0", ports.addresses[0], 2, posted)
        with contextlib.closing(grpc.insecure_channel(f"ipv4:{ports.addresses[0]}")) as opened:
            yield opened
        server.stop()


def join(channel: grpc.Channel) -> Any:
    """Opens a stream; returns the queue of what it sends, as JSON, and the call, which ends when nobody refers to it."""
    outgoing: queue.SimpleQueue = queue.SimpleQueue()
    requests = iter(lambda: json.dumps(outgoing.get()).encode(), None)
    return outgoing, channel.stream_stream(f"/{SERVICE}/{METHOD}")(requests)


def test_a_stream_that_floods_waits_until_its_messages_are_handled(
    channel: grpc.Channel, posted: Posted
) -> None:
    outgoing, call = join(channel)
    for number in range(500):
        outgoing.put({"type": "waiting", "number": number})
    wait_until(lambda: posted.messages, _SECONDS, "the first message")
    time.sleep(_PATIENCE)
    held = len(posted.messages)
    assert held <= 16
    posted.streams[0].handled()
    wait_until(lambda: len(posted.messages) == held + 1, _SECONDS, "one more message")
    for _ in range(500):
        posted.streams[0].handled()
    wait_until(lambda: len(posted.messages) == 500, _SECONDS, "all messages")
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
