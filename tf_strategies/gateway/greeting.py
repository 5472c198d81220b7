"""Defines the greeting with which two gateways prove themselves to each other, before TLS and before anything else is read.

connecting end  ->  hello: magic, security, purpose, and the opening of a handshake (tf_strategies/handshake.py)
accepting end   ->  magic, security, challenge
connecting end  ->  proof
both            ==  TLS, if both use it
accepting end   ->  READY
"""

from __future__ import annotations

import dataclasses
import enum
import hmac
import struct

from tf_strategies.handshake import CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES, Accepting, Connecting
from tf_strategies.secret import SECRET_FILE
from tf_strategies.tls import TLS_FOLDER, TlsFiles

__all__ = [
    "ANSWER_BYTES",
    "CHALLENGE_BYTES",
    "MAGIC",
    "OPENING_BYTES",
    "PROOF_BYTES",
    "READY",
    "TICKET_BYTES",
    "Caller",
    "Purpose",
    "Receiver",
    "Security",
]

MAGIC = b"TFSGATE1"
_HELLO = struct.Struct("!8sBB")
_ANSWER = struct.Struct("!8sB")
_SECRET, _TLS = 1, 2

READY = b"\1"
TICKET_BYTES = 16
OPENING_BYTES = _HELLO.size + NONCE_BYTES
ANSWER_BYTES = _ANSWER.size


class Purpose(enum.IntEnum):
    """Says for what a connection is used."""

    TENSORFLOW = 0  # gRPC to TensorFlow's server
    TICKET = 1  # a ticket for one connection for tensors follows READY
    DATA = 2  # tensors; the ticket follows the proof, and TLS starts after READY, in the process that takes the connection


@dataclasses.dataclass(frozen=True)
class Security:
    """Holds the secret and the certificate of a task.

    Attributes:
        secret: of the cluster; empty if there is none.
        tls: the certificate of this task; None if it uses no TLS.
    """

    secret: bytes = dataclasses.field(repr=False)
    tls: TlsFiles | None

    @property
    def kinds(self) -> int:
        return (_SECRET if self.secret else 0) | (_TLS if self.tls is not None else 0)

    @property
    def key(self) -> bytes:
        return hmac.digest(self.secret, b"tf_strategies gateway", "sha256")


class Caller:
    """Is the connecting end of a greeting.

    Attributes:
        opening: the bytes to send first.
    """

    def __init__(self, security: Security, purpose: Purpose) -> None:
        self._security = security
        self._handshake = Connecting(security.key, _HELLO.pack(MAGIC, security.kinds, purpose))
        self.opening = self._handshake.opening

    def check(self, answer: bytes) -> None:
        """Checks the first `ANSWER_BYTES` bytes of the answer.

        Raises:
            ValueError: the other end has other security.
            ConnectionError: neither of them has any, so there is no gateway.
        """
        magic, kinds = _ANSWER.unpack(answer)
        if magic != MAGIC and not self._security.kinds:
            raise ConnectionError("it has no gateway")
        difference = _difference(kinds if magic == MAGIC else 0, self._security.kinds)
        if difference:
            raise ValueError(difference)

    def proof(self, challenge: bytes) -> bytes:
        """Checks the challenge, which follows, and returns the proof to send.

        Raises:
            ValueError: the other end does not know the secret.
        """
        return self._handshake.answer(challenge)[0]


class Receiver:
    """Is the accepting end of a greeting.

    Args:
        security: of this task.
        opening: the first `OPENING_BYTES` bytes of the other end. They begin with `MAGIC`.

    Attributes:
        answer: the bytes to send next.
        difference: what the other end has and this one has not, or the reverse; "" if they agree.
        purpose: of the connection; to be believed after `check`.

    Raises:
        ValueError: the purpose is unknown.
    """

    def __init__(self, security: Security, opening: bytes) -> None:
        _, kinds, purpose = _HELLO.unpack_from(opening)
        self.difference = _difference(kinds, security.kinds)
        self._handshake = Accepting(security.key, opening)
        self.purpose = _purpose(purpose)
        self.answer = _ANSWER.pack(MAGIC, security.kinds) + self._handshake.challenge

    def check(self, proof: bytes) -> None:
        """Checks the proof, of `PROOF_BYTES` bytes.

        Raises:
            ValueError: the other end does not know the secret.
        """
        self._handshake.check(proof)


def _purpose(number: int) -> Purpose:
    try:
        return Purpose(number)
    except ValueError:
        raise ValueError(
            "its connection has an unknown purpose; give all tasks the same version of tf_strategies"
        ) from None


def _difference(theirs: int, ours: int) -> str:
    """Returns what the other end has and this one has not, or the reverse; "" if they agree."""
    for kind, name, variable in ((_SECRET, "a secret", SECRET_FILE), (_TLS, "TLS", TLS_FOLDER)):
        if theirs & kind and not ours & kind:
            return f"it uses {name}, and this task does not; set {variable} on all tasks, or on none"
        if ours & kind and not theirs & kind:
            return f"this task uses {name}, and it does not; set {variable} on all tasks, or on none"
    return ""
