"""Proves to both ends of a connection that the other one knows a shared key, and protects messages afterwards.

The exchange is a challenge and response with HMAC-SHA256 (RFC 2104), as in ISO/IEC 9798-4, mechanism for mutual authentication:

    connecting end  ->  opening: a header of the protocol, a nonce
    accepting end   ->  challenge: a nonce, HMAC of "accept", opening and nonce
    connecting end  ->  proof: HMAC of "connect", opening and nonce

Both nonces are random and used once, so a recorded exchange proves nothing a second time. Imports no TensorFlow.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

__all__ = [
    "CHALLENGE_BYTES",
    "NONCE_BYTES",
    "PROOF_BYTES",
    "SEAL_BYTES",
    "Accepting",
    "AuthenticationError",
    "Connecting",
    "Session",
]

NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size
CHALLENGE_BYTES = NONCE_BYTES + PROOF_BYTES
SEAL_BYTES = hashlib.sha256().digest_size  # that a sealed message is longer


class AuthenticationError(ValueError):
    """Says that the other end does not know the key, or that a message is not from it."""


class Connecting:
    """Is the end that opens a connection.

    Args:
        key: the shared key; empty if there is none.
        header: what the protocol says in clear text; both ends must mean the same by it.

    Attributes:
        opening: the bytes to send first: the header and a nonce.
    """

    def __init__(self, key: bytes, header: bytes) -> None:
        self._key = key
        self.opening = header + secrets.token_bytes(NONCE_BYTES)

    def answer(self, challenge: bytes) -> tuple[bytes, Session]:
        """Checks the accepting end's challenge. Returns the proof to send, and the session.

        Args:
            challenge: `CHALLENGE_BYTES` bytes.

        Raises:
            AuthenticationError: the accepting end does not know the key.
        """
        nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
        said = self.opening + nonce
        _check(proof, self._key, b"accept", said)
        return _mac(self._key, b"connect", said), Session(self._key, said, connecting=True)


class Accepting:
    """Is the end that accepts a connection.

    Args:
        key: the shared key; empty if there is none.
        opening: what the connecting end has sent first.

    Attributes:
        challenge: the `CHALLENGE_BYTES` bytes to send next.
    """

    def __init__(self, key: bytes, opening: bytes) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._key, self._said = key, opening + nonce
        self.challenge = nonce + _mac(key, b"accept", self._said)

    def check(self, proof: bytes) -> Session:
        """Checks the connecting end's proof, and returns the session.

        Raises:
            AuthenticationError: the connecting end does not know the key.
        """
        _check(proof, self._key, b"connect", self._said)
        return Session(self._key, self._said, connecting=False)


class Session:
    """Seals the messages of one connection: each carries an HMAC of its number and content, with a key for each direction.

    A message that was changed, repeated, left out or put elsewhere does not open. Contents are not encrypted.
    """

    def __init__(self, key: bytes, said: bytes, *, connecting: bool) -> None:
        directions = (b"from connecting", b"from accepting")
        mine, theirs = directions if connecting else directions[::-1]
        self._sends, self._receives = _mac(key, mine, said), _mac(key, theirs, said)
        self._sent = self._received = 0

    def seal(self, message: bytes) -> bytes:
        """Returns the message with its seal in front. Messages must be sent in the order in which they are sealed."""
        seal = _mac(self._sends, b"%d " % self._sent, message)
        self._sent += 1
        return seal + message

    def open(self, sealed: bytes) -> bytes:
        """Returns the message of the next sealed one.

        Raises:
            AuthenticationError: it is not the next message of the other end.
        """
        _check(sealed[:SEAL_BYTES], self._receives, b"%d " % self._received, sealed[SEAL_BYTES:])
        self._received += 1
        return sealed[SEAL_BYTES:]


def _mac(key: bytes, what: bytes, said: bytes) -> bytes:
    return hmac.digest(key, what + said, "sha256")


def _check(proof: bytes, key: bytes, what: bytes, said: bytes) -> None:
    if not hmac.compare_digest(proof, _mac(key, what, said)):
        raise AuthenticationError("it does not know the secret of this cluster")
