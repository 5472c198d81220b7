"""A member's stream to rank 0 over gRPC."""

from __future__ import annotations

import queue
import socket
import threading
from typing import Callable, Iterator

from tf_strategies.addresses import split_address
from tf_strategies.control_plane import channel_options, stream_handshake, tls_probe
from tf_strategies.control_plane.messages import Message, decode, encode
from tf_strategies.handshake import AuthenticationError, Session
from tf_strategies.name_lookup import look_up
from tf_strategies.options import ELASTIC_HEARTBEAT_TIMEOUT
from tf_strategies.secret import SECRET_FILE
from tf_strategies.tls import CLUSTER_NAME, TLS_FOLDER, TlsFiles

channel_options.set_environment_defaults()
import grpc  # noqa: E402  (reads its environment when it is imported)

from tf_strategies.control_plane.server import METHOD, SERVICE  # noqa: E402

_JOIN_SECONDS = 2.0
_PARTING_SECONDS = 1.0  # less than _JOIN_SECONDS


class RemoteLink:
    """One attempt at a stream, from its opening to its end.

    Args:
        address: the "host:port" of rank 0.
        secret: of the cluster; b"" if it has none.
        on_message: called with each message, on the link's own thread.
        on_closed: called once with the reason when the stream has ended, on that thread too.
        tls: the certificate of this task; None for a connection without TLS.

    Attributes:
        refused: the environment variable that the two ends disagree about, for the secret or TLS; "" if it is none.

    Raises:
        OSError: when the host's name cannot be resolved (now).
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        on_message: Callable[[RemoteLink, Message], None],
        on_closed: Callable[[RemoteLink, str], None],
        tls: TlsFiles | None = None,
        heartbeat_timeout: float = ELASTIC_HEARTBEAT_TIMEOUT,
    ) -> None:
        self._on_message = on_message
        self._on_closed = on_closed
        self.refused = ""
        self._closing = False
        self._address, self._tls = address, tls
        self._session: Session | None = None
        self._secret = secret
        self._connecting = stream_handshake.connect(secret)
        self._authenticated: queue.SimpleQueue[tuple[bytes, Session] | None] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._channel = _open_channel(_target(address), tls, heartbeat_timeout)
        self._call: grpc.Call | None = self._channel.stream_stream(f"/{SERVICE}/{METHOD}")(self._requests())
        self._thread = threading.Thread(
            target=self._read, args=(self._call,), name="tf_strategies member", daemon=True
        )
        self._thread.start()

    def send(self, message: Message) -> None:
        """Queues a message; never blocks or raises, also when the stream is broken."""
        self._outgoing.put(message)

    def close(self) -> None:
        """Breaks the stream and joins the thread; bounded. `on_closed` is called if it was not."""
        self._closing = True
        self._end_requests()
        if self._call is not None:
            self._call.cancel()
        self._channel.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        # The call's finalizer takes a lock that a daemon thread of gRPC may hold: do not leave it to the
        # interpreter's exit, which stops that thread wherever it is.
        self._call = None

    def _requests(self) -> Iterator[bytes]:
        yield self._connecting.opening
        authenticated = self._authenticated.get()
        if authenticated is None:
            return
        proof, session = authenticated
        yield proof
        while True:
            message = self._outgoing.get()
            if message is None:
                return
            yield session.seal(encode(message))

    def _read(self, call: grpc.Call) -> None:
        reason = "it ended the connection"
        try:
            self._session = session = self._authenticate(call)
            for data in call:
                self._on_message(self, decode(session.open(data)))
        except AuthenticationError as error:
            self.refused, reason = SECRET_FILE, str(error)
            self._part(call)
        except StopIteration:
            pass
        except ValueError as error:
            reason = f"it does not speak this protocol ({error})"
        except grpc.RpcError as error:
            reason = _one_line(error)
            error.__traceback__ = None  # the error is the call itself, which this would keep alive
            reason = self._tls_disagreement() or reason
        finally:
            self._end_requests()
            self._on_closed(self, reason)

    def _authenticate(self, call: grpc.Call) -> Session:
        proof, session = stream_handshake.answer(self._connecting, self._secret, next(call))
        self._authenticated.put((proof, session))
        return session

    def _part(self, call: grpc.Call) -> None:
        """Ends the requests and waits until rank 0 ends the stream; bounded.

        A stream that was cancelled first may seem to rank 0 like a lost connection. Then rank 0 does not log the disagreement.
        """
        self._end_requests()
        ended = threading.Event()
        if call.add_callback(ended.set):
            ended.wait(_PARTING_SECONDS)

    def _tls_disagreement(self) -> str:
        """Returns why TLS keeps the two ends from talking, and notes that; "" if it is something else."""
        if self._session is not None or self._closing:
            return ""
        found = tls_probe.disagreement(self._address, self._tls)
        if found:
            self.refused = TLS_FOLDER
        return found

    def _end_requests(self) -> None:
        self._authenticated.put(None)
        self._outgoing.put(None)


def _open_channel(target: str, tls: TlsFiles | None, heartbeat_timeout: float) -> grpc.Channel:
    options = channel_options.member_options(heartbeat_timeout)
    if tls is None:
        return grpc.insecure_channel(target, options=options)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    options.append(("grpc.ssl_target_name_override", CLUSTER_NAME))
    return grpc.secure_channel(target, credentials, options=options)


def _target(address: str) -> str:
    host, port = split_address(address)
    found = look_up(host, port)
    family = found[0][0]
    places = dict.fromkeys(str(entry[4][0]) for entry in found if entry[0] == family)
    if family == socket.AF_INET6:
        return "ipv6:" + ",".join(f"[{place}]:{port}" for place in places)
    return "ipv4:" + ",".join(f"{place}:{port}" for place in places)


def _one_line(error: Exception) -> str:
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if not callable(code) or not callable(details):
        return str(error)
    status = code()
    name = status.name if isinstance(status, grpc.StatusCode) else str(status)
    return f"{name}: {' '.join(str(details()).split())[:300]}"
