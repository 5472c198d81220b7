"""Authenticates the stream between a member and rank 0, before anything else on it is read.

    member  ->  "TFSCTL01", whether it has a secret, a nonce
    rank 0  ->  whether it has a secret, a nonce, its proof
    member  ->  its proof

Then every message of both is sealed (tf_strategies/handshake.py). Without a secret the same exchange runs with an empty key: it
proves nothing, and tells a task with a secret from one without.
"""

from __future__ import annotations

from tf_strategies.handshake import (
    CHALLENGE_BYTES,
    NONCE_BYTES,
    Accepting,
    AuthenticationError,
    Connecting,
    Session,
)
from tf_strategies.secret import SECRET_FILE

__all__ = ["accept", "answer", "challenge", "connect", "reason_of_silence"]

_MAGIC = b"TFSCTL01"
_HAS_SECRET, _HAS_NONE = b"\1", b"\0"


def connect(secret: bytes) -> Connecting:
    """Returns the member's end. Its `opening` is to be sent first."""
    return Connecting(secret, _MAGIC + _flag(secret))


def accept(secret: bytes, opening: bytes) -> Accepting:
    """Returns rank 0's end for what a member has sent first.

    Raises:
        ValueError: it is no opening of this protocol.
    """
    if len(opening) != len(_MAGIC) + 1 + NONCE_BYTES or not opening.startswith(_MAGIC):
        raise ValueError("it does not speak this protocol")
    return Accepting(secret, opening)


def challenge(secret: bytes, accepting: Accepting) -> bytes:
    """Returns what rank 0 answers to the opening."""
    return _flag(secret) + accepting.challenge


def answer(connecting: Connecting, secret: bytes, challenge: bytes) -> tuple[bytes, Session]:
    """Checks rank 0's answer. Returns the member's proof, and the session.

    Raises:
        AuthenticationError: rank 0 does not know the secret.
        ValueError: it is no answer of this protocol.
    """
    flag, rest = challenge[:1], challenge[1:]
    if len(rest) != CHALLENGE_BYTES or flag not in (_HAS_SECRET, _HAS_NONE):
        raise ValueError("it does not speak this protocol")
    if flag != _flag(secret):
        raise AuthenticationError(_only_one_has_a_secret(flag))
    return connecting.answer(rest)


def reason_of_silence(secret: bytes, opening: bytes) -> str:
    """Returns why a member has ended the exchange after rank 0's answer, as far as its opening shows."""
    flag = opening[len(_MAGIC) :][:1]
    return (
        "it does not accept the secret of this task"
        if flag == _flag(secret)
        else _only_one_has_a_secret(flag)
    )


def _only_one_has_a_secret(flag_of_other: bytes) -> str:
    with_secret, without = ("it", "this task") if flag_of_other == _HAS_SECRET else ("this task", "it")
    return f"{with_secret} has a secret, and {without} has none ({SECRET_FILE})"


def _flag(secret: bytes) -> bytes:
    return _HAS_SECRET if secret else _HAS_NONE
