"""The gRPC server of rank 0, on its TF_CONFIG address only: gives each member's stream to the coordinator."""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import socket
import threading
import time
from concurrent import futures
from typing import Any, Callable, Iterator

from tf_strategies.addresses import join_address, split_address
from tf_strategies.control_plane import channel_options, stream_handshake
from tf_strategies.control_plane.link import Connection
from tf_strategies.control_plane.messages import Message, decode, encode
from tf_strategies.errors import BootstrapError
from tf_strategies.handshake import AuthenticationError, Session
from tf_strategies.name_lookup import look_up
from tf_strategies.options import ELASTIC_HEARTBEAT_TIMEOUT
from tf_strategies.refusal_counts import RefusalCounts
from tf_strategies.tls import TlsFiles
from tf_strategies.types import Result

channel_options.set_environment_defaults()
import grpc  # noqa: E402  (reads its environment when it is imported)

SERVICE = "tf_strategies.ControlPlane"
METHOD = "Join"

_SPARE_STREAMS = 16  # that may wait for their first message, beside those of the members
_ENDING_STREAMS = 48
_HELLO_SECONDS = 10.0
_MOST_UNHANDLED = 16  # messages of one stream; further ones wait in its connection
_REMEDY_OF_TASKS = (
    "end the process that uses the port (an earlier run, or a second process with this index), or correct this task's address in "
    "TF_CONFIG"
)

_log = logging.getLogger("tf_strategies")

Post = Callable[[Connection, "Message | None"], None]


class ControlServer:
    """Serves while it exists; `stop` ends it.

    Args:
        name: this task, for messages.
        address: its "host:port" of TF_CONFIG.
        size: the number of ranks.
        secret: of the cluster; b"" if it has none. A stream whose other end does not know it is ended.
        tls: the certificate of this task; None for connections without TLS.
        post: receives every message of every stream, and None when a stream ends. Whoever has handled a message calls `handled`
            of the stream.
        remedy: what to do if the address cannot be listened on.

    Raises:
        BootstrapError: when the address cannot be listened on.
    """

    def __init__(
        self,
        name: str,
        address: str,
        size: int,
        secret: bytes,
        post: Post,
        tls: TlsFiles | None = None,
        *,
        remedy: str = _REMEDY_OF_TASKS,
        heartbeat_timeout: float = ELASTIC_HEARTBEAT_TIMEOUT,
    ) -> None:
        self._name, self._secret, self._post = name, secret, post
        self._refused = RefusalCounts()
        self._silent = _SilentStreams(size + _SPARE_STREAMS)
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server = grpc.server(
            _ThreadPerStream(),
            handlers=[grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})],
            options=channel_options.server_options(size, heartbeat_timeout),
            maximum_concurrent_rpcs=2 * size + _SPARE_STREAMS + _ENDING_STREAMS,
        )
        try:
            for target in _listenable(address):
                self._listen(target, tls)
        except _CannotListenError as error:
            raise BootstrapError(f"{name} cannot listen on {error}; {remedy}") from error
        self._server.start()

    def _listen(self, target: str, tls: TlsFiles | None) -> None:
        try:
            if tls is None:
                self._server.add_insecure_port(target)
                return
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)], root_certificates=tls.authority, require_client_auth=True
            )
            self._server.add_secure_port(target, credentials)
        except RuntimeError as error:
            raise _CannotListenError(f"{target}: {error}") from error

    def stop(self) -> None:
        """Ends all streams and the server; bounded, and starts no thread."""
        self._server.stop(None)

    def _serve(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = _Stream(context.peer())
        if not context.add_callback(stream.end):
            return
        reader = threading.Thread(
            target=self._read, args=(requests, stream), name="tf_strategies reader", daemon=True
        )
        reader.start()
        with self._silent.holding(stream):
            until = time.monotonic() + _HELLO_SECONDS
            challenge = stream.challenge(_HELLO_SECONDS)
            if challenge is None:
                return
            yield challenge
            if not stream.opened.wait(max(0.0, until - time.monotonic())):
                return
        yield from stream.outgoing()

    def _read(self, requests: Iterator[bytes], stream: _Stream) -> None:
        try:
            session = stream.authenticate(requests, self._secret)
            for data in requests:
                message = decode(session.open(data))
                if not stream.may_post():
                    break
                self._post(stream, message)
                stream.opened.set()
        except AuthenticationError as error:
            self._warn_of_stranger(stream.peer, error)
        except (ValueError, grpc.RpcError):
            pass
        except Exception as error:  # gRPC ends the requests of a broken stream with a bare Exception
            if type(error) is not Exception:
                raise
        finally:
            stream.end()
            self._post(stream, None)

    def _warn_of_stranger(self, peer: str, error: AuthenticationError) -> None:
        """Logs some of the connections that were refused for the same reason, with their number."""
        number = self._refused.count(str(error), peer.rpartition(":")[0])
        if number:
            _log.warning("%s refused a connection from %s: %s (%d so far)", self._name, peer, error, number)


class _Stream:
    """One member's stream: a roster.Connection."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.opened = threading.Event()  # the first message has come, or never will
        self._ended = threading.Event()
        self._room = threading.Semaphore(_MOST_UNHANDLED)
        self._challenge: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._session: Session | None = None

    def send(self, message: Message) -> None:
        self._outgoing.put(message)

    def end(self) -> None:
        self._challenge.put(None)
        self._outgoing.put(None)
        self._ended.set()
        self.opened.set()

    def handled(self) -> None:
        self._room.release()

    def may_post(self) -> bool:
        """Waits until few messages are unhandled. Returns False if the stream has ended before."""
        while not self._room.acquire(timeout=1.0):
            if self._ended.is_set():
                return False
        return True

    def authenticate(self, requests: Iterator[bytes], secret: bytes) -> Session:
        """Returns the session of a member that knows the secret; AuthenticationError or ValueError for a stranger."""
        opening = next(requests, b"")
        accepting = stream_handshake.accept(secret, opening)
        self._challenge.put(stream_handshake.challenge(secret, accepting))
        proof = next(requests, None)
        if proof is None:
            raise AuthenticationError(stream_handshake.reason_of_silence(secret, opening))
        self._session = accepting.check(proof)
        return self._session

    def challenge(self, seconds: float) -> bytes | None:
        """Waits for the challenge that is to be sent; None if there is none in time."""
        try:
            return self._challenge.get(timeout=seconds)
        except queue.Empty:
            return None

    def outgoing(self) -> Iterator[bytes]:
        while True:
            message = self._outgoing.get()
            if message is None or self._session is None:
                return
            yield self._session.seal(encode(message))


class _SilentStreams:
    """The streams that have said nothing yet. Beyond a number, a new one ends the oldest, so that strangers hold no places."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []

    @contextlib.contextmanager
    def holding(self, stream: _Stream) -> Iterator[None]:
        with self._lock:
            self._streams.append(stream)
            oldest = self._streams.pop(0) if len(self._streams) > self._most else None
        if oldest is not None:
            oldest.end()
        try:
            yield
        finally:
            with self._lock:
                if stream in self._streams:
                    self._streams.remove(stream)


class _ThreadPerStream(futures.Executor):
    """A daemon thread for each stream: an executor that the interpreter's exit does not wait for."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> futures.Future[Result]:
        future: futures.Future[Result] = futures.Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=work, name="tf_strategies stream", daemon=True).start()
        return future


class _CannotListenError(Exception):
    """Reports an address, and why nobody can listen on it here."""


def _listenable(address: str) -> list[str]:
    """Returns the numeric addresses of `address` on this machine, each found free."""
    host, port = split_address(address)
    try:
        found = look_up(host, port)
    except OSError as error:
        raise _CannotListenError(f"{address}: {host} cannot be resolved ({error})") from error
    targets: list[str] = []
    reason = ""
    for family, kind, protocol, _, place in dict.fromkeys(found):
        target = join_address(str(place[0]), port)
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _CannotListenError(f"{target}: the port is taken") from error
            reason = f"{target}: {error.strerror}"
        else:
            targets.append(target)
    if not targets:
        raise _CannotListenError(f"{address}: it is no address of this machine ({reason})")
    return targets
