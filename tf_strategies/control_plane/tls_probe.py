"""Finds out why TLS keeps a member and rank 0 from talking, after a stream between them has failed.

gRPC does not tell. So the member opens a connection of its own, and looks at how the handshake ends.
"""

from __future__ import annotations

import socket
import ssl

from tf_strategies.addresses import split_address
from tf_strategies.name_lookup import look_up
from tf_strategies.tls import CLUSTER_NAME, TlsFiles, client_context

__all__ = ["disagreement"]

_SECONDS = 2.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
# OpenSSL's words for an answer that is no TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


def disagreement(address: str, tls: TlsFiles | None) -> str:
    """Returns why the task at an address and this one cannot talk, or "" if TLS is not the reason.

    Args:
        address: "host:port" of rank 0.
        tls: the certificate of this task; None if it uses no TLS.
    """
    try:
        place = look_up(*split_address(address))[0][4]
        with socket.create_connection(place[:2], _SECONDS) as opened:
            return _without_tls(opened) if tls is None else _with_tls(opened, tls)
    except OSError:  # it is not there, or says nothing
        return ""


def _without_tls(opened: socket.socket) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(opened):
        return "it uses TLS, and this task does not"


def _with_tls(opened: socket.socket, tls: TlsFiles) -> str:
    context = client_context(tls)
    context.set_alpn_protocols(["h2"])
    try:
        wrapped = context.wrap_socket(opened, server_hostname=CLUSTER_NAME)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is refused: {error.verify_message.rstrip('.')}"
    except ssl.SSLError as error:
        if error.reason in _NOT_TLS:
            return "this task uses TLS, and it does not"
        # A server that has no room for the connection, or that ends, closes it: that is no disagreement.
        ended = isinstance(error, ssl.SSLEOFError) or not error.reason
        return "" if ended else f"the TLS handshake failed: {_words(error)}"
    with wrapped:
        try:
            wrapped.sendall(_PREFACE)
            answers = wrapped.recv(1) != b""
        except socket.timeout:
            answers = True
        except ssl.SSLError as error:
            return f"it refuses the certificate of this task: {_words(error)}"
        except OSError:
            answers = False
    return "" if answers else "it ends the connection, as it does if it refuses the certificate of this task"


def _words(error: ssl.SSLError) -> str:
    return str(error.reason).lower().replace("_", " ")
