"""Checks that other processes are alive, by a cheap request to TensorFlow's gRPC server."""

from __future__ import annotations

import threading
import time
from typing import Callable, List, Optional, Sequence, Tuple

import grpc

from tf_strategies.errors import BootstrapError
from tf_strategies.parameter_server.cluster import readiness
from tf_strategies.parameter_server.cluster.protection import Protection

__all__ = ["Heartbeat", "error_of_request", "wait_until_all_are_ready"]

_QUESTION = "/tensorflow.WorkerService/GetStatus"
_ASK_EVERY_SECONDS = 1.0
_READY_SECONDS = 1.5
MOST_UNANSWERED = 2
_RETRY_SECONDS = 0.1
_REFUSAL_SECONDS = 3.0  # so long a server may seem to have no gateway while it starts
_LARGEST_ANSWER = 1 << 20
_OTHER_PROCESS = "its process has ended, and another one answers at its address"

_CHANNEL_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", _LARGEST_ANSWER),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class _Peer:
    def __init__(self, address: str, *, through_proxy: bool) -> None:
        options = [("grpc.enable_http_proxy", int(through_proxy)), *_CHANNEL_OPTIONS]
        self._channel = grpc.insecure_channel(address, options=options)
        self._is_there = self._channel.unary_unary(_QUESTION)
        self._is_ready = self._channel.unary_unary(readiness.ASK)

    def error_of_request(self, seconds: float, process: bytes = b"") -> str:
        """Returns "" if the process answered, otherwise the reason why not.

        Args:
            seconds: how long it may take.
            process: identifies the process that must answer; b"" for any.
        """
        reason, answer = self._ask(self._is_there, b"", seconds)
        return reason or ("" if process in (b"", answer) else _OTHER_PROCESS)

    def ready_process(self, seconds: float) -> Tuple[str, bytes]:
        """Returns "" if the server is ready for workers, otherwise the reason why not; and what identifies its process."""
        reason, process = self._ask(self._is_there, b"", seconds)  # the devices, each with a random number
        if not reason:
            reason, _ = self._ask(self._is_ready, readiness.QUESTION, seconds)
        return reason, process

    def _ask(self, ask: Callable[..., bytes], question: bytes, seconds: float) -> Tuple[str, bytes]:
        try:
            return "", ask(question, timeout=seconds)
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {' '.join(str(error.details()).split())[:200]}"
            error.__traceback__ = None  # the error holds the call, which must not be kept alive
            return reason, b""

    def close(self) -> None:
        self._channel.close()


def error_of_request(address: str, seconds: float, *, through_proxy: bool, process: bytes = b"") -> str:
    """Returns "" if the process at the address answers within some seconds, otherwise the reason why not.

    Args:
        address: "host:port".
        seconds: how long it may take.
        through_proxy: whether the address is that of a gateway.
        process: identifies the process that must answer; b"" for any.
    """
    peer = _Peer(address, through_proxy=through_proxy)
    try:
        return peer.error_of_request(seconds, process)
    finally:
        peer.close()


def wait_until_all_are_ready(
    asker: str, peers: Sequence[Tuple[str, str]], timeout: float, protection: Protection
) -> List[bytes]:
    """Waits until all servers are ready.

    Args:
        asker: the name of the waiting task, for messages.
        peers: (name, address) of each.
        timeout: seconds.
        protection: of this task.

    Returns:
        What identifies the process of each: a server that ends, and starts again at once, is another one.

    Raises:
        BootstrapError: a server has not answered in time, or does not accept this task.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = [_wait_until_ready(asker, *peer, timeout, deadline, protection) for peer in peers]
        if not any(waited for _, waited in found):
            return [process for process, _ in found]
        # One may have ended while another one was waited for.


def _wait_until_ready(
    asker: str, name: str, address: str, timeout: float, deadline: float, protection: Protection
) -> Tuple[bytes, bool]:
    """Returns what identifies the process of a server that is ready, and whether it was waited for."""
    peer = _Peer(address, through_proxy=protection.has_gateway)
    refused_since: Optional[float] = None
    waited = False
    try:
        while True:
            reason, process = peer.ready_process(_READY_SECONDS)
            if not reason:
                return process, waited
            waited = True
            refusal = protection.reason_of_refusal(address)
            refused_since = (refused_since or time.monotonic()) if refusal else None
            if refused_since is not None and time.monotonic() > refused_since + _REFUSAL_SECONDS:
                raise BootstrapError(f"{asker} and {name} do not trust each other: {refusal}")
            if time.monotonic() > deadline:
                raise BootstrapError(
                    f"{asker} waited {timeout:g} s for {name}, which does not answer ({reason}); start the script there with "
                    "its own TF_CONFIG, and check that its address can be reached from here"
                )
            time.sleep(_RETRY_SECONDS)
    finally:
        peer.close()


class Heartbeat:
    """Sends heartbeats to a process, on a thread of its own, until it no longer answers.

    Args:
        name, address: the name and the address of the process.
        on_lost: called once on that thread, with the reason.
        timeout: the number of seconds after which a process that does not answer is lost.
        through_proxy: whether the address is that of a gateway.
        process: identifies the process; b"" for any at the address.
    """

    def __init__(
        self,
        name: str,
        address: str,
        on_lost: Callable[[str], None],
        *,
        timeout: float,
        through_proxy: bool,
        process: bytes = b"",
    ) -> None:
        self.name, self._process = name, process
        self._answer_seconds = timeout / MOST_UNANSWERED
        self._peer = _Peer(address, through_proxy=through_proxy)
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name=f"tf_strategies heartbeat of {name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        unanswered = 0
        while not self._stopped.wait(_ASK_EVERY_SECONDS if unanswered == 0 else _RETRY_SECONDS):
            reason = self._peer.error_of_request(self._answer_seconds, self._process)
            unanswered = unanswered + 1 if reason else 0
            if unanswered == MOST_UNANSWERED and not self._stopped.is_set():
                self._on_lost(reason)
                break
        self._peer.close()
