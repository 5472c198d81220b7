"""Tests that both ends of a connection prove the key, and that sealed messages open once and in order."""

from __future__ import annotations

import itertools
from typing import Tuple

import pytest

from tf_strategies.handshake import (
    CHALLENGE_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    SEAL_BYTES,
    Accepting,
    AuthenticationError,
    Connecting,
    Session,
)

pytestmark = pytest.mark.any_line

KEY, OTHER, HEADER = b"k" * 32, b"o" * 32, b"a protocol 1"


def sessions(key: bytes = KEY) -> Tuple[Session, Session]:
    """Returns both ends' sessions after a handshake."""
    connecting = Connecting(key, HEADER)
    accepting = Accepting(key, connecting.opening)
    proof, mine = connecting.answer(accepting.challenge)
    return mine, accepting.check(proof)


@pytest.mark.parametrize("key", [KEY, b""])
def test_ends_with_the_same_key_trust_each_other(key: bytes) -> None:
    mine, theirs = sessions(key)
    for number in range(3):
        message = b"message %d" % number
        assert theirs.open(mine.seal(message)) == message
        assert mine.open(theirs.seal(message)) == message


def test_lengths_are_those_that_protocols_wait_for() -> None:
    connecting = Connecting(KEY, HEADER)
    accepting = Accepting(KEY, connecting.opening)
    assert len(connecting.opening) == len(HEADER) + NONCE_BYTES
    assert len(accepting.challenge) == CHALLENGE_BYTES
    proof, session = connecting.answer(accepting.challenge)
    assert len(proof) == PROOF_BYTES
    assert len(session.seal(b"xyz")) == SEAL_BYTES + 3


@pytest.mark.parametrize(("mine", "theirs"), [(KEY, OTHER), (KEY, b""), (b"", KEY)])
def test_neither_end_trusts_another_key(mine: bytes, theirs: bytes) -> None:
    connecting = Connecting(mine, HEADER)
    accepting = Accepting(theirs, connecting.opening)
    with pytest.raises(AuthenticationError, match="does not know the secret"):
        connecting.answer(accepting.challenge)
    # An end that ignores this gives a proof that the other one does not take.
    same_key = Accepting(mine, connecting.opening)
    proof, _ = connecting.answer(same_key.challenge)
    with pytest.raises(AuthenticationError, match="does not know the secret"):
        accepting.check(proof)


def test_a_recorded_handshake_proves_nothing_again() -> None:
    connecting = Connecting(KEY, HEADER)
    proof, _ = connecting.answer(Accepting(KEY, connecting.opening).challenge)
    with pytest.raises(AuthenticationError):
        Accepting(KEY, connecting.opening).check(proof)
    challenge = Accepting(KEY, connecting.opening).challenge
    with pytest.raises(AuthenticationError):
        Connecting(KEY, HEADER).answer(challenge)


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    connecting = Connecting(KEY, HEADER)
    accepting = Accepting(KEY, connecting.opening)
    with pytest.raises(AuthenticationError):
        accepting.check(accepting.challenge[NONCE_BYTES:])
    mine, _ = sessions()
    with pytest.raises(AuthenticationError):
        mine.open(mine.seal(b"to the other end"))


def test_a_changed_header_is_noticed() -> None:
    connecting = Connecting(KEY, HEADER)
    changed = connecting.opening[:-NONCE_BYTES].replace(b"1", b"0") + connecting.opening[-NONCE_BYTES:]
    with pytest.raises(AuthenticationError):
        connecting.answer(Accepting(KEY, changed).challenge)


@pytest.mark.parametrize("length", range(0, SEAL_BYTES + 2, 3))
def test_a_cut_message_does_not_open(length: int) -> None:
    mine, theirs = sessions()
    sealed = mine.seal(b"ab")
    assert length < len(sealed)
    with pytest.raises(AuthenticationError):
        theirs.open(sealed[:length])


def test_a_changed_bit_is_noticed_wherever_it_is() -> None:
    mine, theirs = sessions()
    sealed = mine.seal(b"weights")
    for place, bit in itertools.product(range(len(sealed)), (1, 128)):
        changed = bytearray(sealed)
        changed[place] ^= bit
        with pytest.raises(AuthenticationError):
            theirs.open(bytes(changed))
    assert theirs.open(sealed) == b"weights"


def test_messages_open_once_in_order_and_in_their_own_session() -> None:
    mine, theirs = sessions()
    first, second = mine.seal(b"same"), mine.seal(b"same")
    with pytest.raises(AuthenticationError):
        theirs.open(second)
    assert theirs.open(first) == b"same"
    with pytest.raises(AuthenticationError):
        theirs.open(first)
    with pytest.raises(AuthenticationError):
        sessions()[1].open(second)
    assert theirs.open(second) == b"same"
