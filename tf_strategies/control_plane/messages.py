"""The messages of the control plane: JSON objects with a "type", encoded in at most `MAX_MESSAGE_BYTES` bytes.

Messages from a member to rank 0:

    hello        rank, task, process, terms: asks to join
    exchange     sequence, what, payload
    waiting      instance (-1: idle), seconds, quiet, text
    pace         sent (nanoseconds on the clock of the member), and the fields of Pace; each of its wires as a list
    report       code, message, instance, peer: a failure
    described    instance, text, waited (seconds; -1: idle): the answer to describe
    compare      topic, key, payload
    leave        why: the member's script has ended
    aborted      the member has received abort
    stop         training: the member wants to stop it
    can_stop     training, place: the answer to stop_where

While the survivors of a group look for one another (roll_call), in place of all others:

    present      rank, epoch, perhaps (the groups that may have formed without it, each as a list of ranks): of a survivor, to one
                 of a lower rank
    here         the answer of a rank that calls the roll, too
    members      tasks: of the next group, workers: the addresses of all workers that it knows

Messages of a newcomer, a task that has started again while the others train, and the answers of rank 0:

    newcomer     task, workers, terms, fit: asks whether a group trains (fit 0), or to join this call of `fit`, from 1; the
                 addresses of all workers that it knows
    forming      the answer while the first group forms
    training     workers: the answer of a group that trains without the newcomer; the addresses that it knows
    admitted     epoch, tasks, joins, workers: the number and the tasks of the group, the newcomers that join the next one, and
                 the addresses of all workers that the next one knows
    coming       the answer of the newcomer

Message of rank 0 of a group to the first task of the cluster, which may be forming another one:

    elsewhere    name, workers, terms: its group trains already; its name, the addresses that it knows, and its terms

Messages to an arbiter, and its answers:

    ready        asks whether it is there
    here         the answer
    vote         group, ranks, names: asks whether half of a group may go on; its number, and the ranks and names of the half
    granted      the answer if it may; if not, it is `refused`

Messages from rank 0 to a member:

    waiting_for  missing: the members that have not joined yet
    welcome      epoch: the group is complete
    refused      message, retry
    time         sent: of the pace message, at: nanoseconds on the clock of rank 0
    gathered     sequence, first, payloads: of consecutive ranks from `first`
    describe     instance
    left         rank, why: a member has left; the member itself gets it as the answer to leave
    abort        code, message, lost, joins, leavers, workers: the group has ended; the ranks that are lost, the tasks that join,
                 the ranks that leave in good order, and the addresses of all workers that the next group knows, or none
    stop_where   training: asks for the first place at which the member can stop it
    stop_at      training, place: all members stop there

After `welcome`, every message of a member contains the epoch of the group.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from tf_strategies.errors import Code
from tf_strategies.options import MOST_WORKERS
from tf_strategies.slow_wire import Sent
from tf_strategies.types import JsonObject

Message = JsonObject

MAX_MESSAGE_BYTES = 1 << 20
MOST_WIRES = 64  # of a pace message
_MOST_ADDRESS_CHARACTERS = MAX_MESSAGE_BYTES // 4
PROTOCOL = 11


class Pace(NamedTuple):
    """Says how far a member is.

    Attributes:
        ended: the number of its collectives that have ended.
        outstanding: the seconds in which at least one of its collectives was outstanding.
        wires: what it has sent to other members, if the system counts it: to those that got most, at most `MOST_WIRES`.
    """

    ended: int
    outstanding: float
    wires: tuple[Sent, ...] = ()


class Wait(NamedTuple):
    """The collective in which a member waits.

    Attributes:
        instance: its number; -1 if the member does not wait.
        seconds: how long the member has waited.
        quiet: the seconds since it last sent or received data.
        text: the collective in words.
    """

    instance: int = -1
    seconds: float = 0.0
    quiet: float = 0.0
    text: str = ""


class Failure(NamedTuple):
    """The reason why a group ended.

    Attributes:
        code: the kind of failure.
        message: the cause and the remedy, in one line.
        lost: the ranks without which the others could go on; none if every rank is to blame, or nobody knows.
        joins: the tasks for whose sake the group ended, which join the next one, "worker 2".
        leavers: the ranks for whose sake it ended, which leave in good order. All ranks have agreed on that.
        workers: the addresses of all workers that the next group knows; none if there are no others than before.
    """

    code: Code
    message: str
    lost: frozenset[int] = frozenset()
    joins: tuple[str, ...] = ()
    leavers: frozenset[int] = frozenset()
    workers: tuple[str, ...] = ()


def encode(message: Message) -> bytes:
    """Returns the bytes of a message.

    Raises:
        ValueError: it is larger than `MAX_MESSAGE_BYTES`.
    """
    data = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a {message.get('type')} message has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} are sent"
        )
    return data


def decode(data: bytes) -> Message:
    """Returns the message in `data`.

    Raises:
        ValueError: `data` is not a message.
    """
    try:
        message = json.loads(data)
    except RecursionError:
        raise ValueError("a message is nested too deep") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ValueError("a message must be an object with a type")
    return message


def integer(message: Message, key: str) -> int:
    """Returns an integer field of a message.

    Raises:
        ValueError: the field is missing, has another type or more than 63 bits.
    """
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value.bit_length() > 63:
        raise ValueError(f"the {key!r} of a {message['type']} message must be an integer of 64 bits")
    return value


def number(message: Message, key: str) -> float:
    """Returns a numeric field of a message.

    Raises:
        ValueError: the field is missing, has another type or is not finite.
    """
    value = message.get(key)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if type(value) is not int:
        raise ValueError(f"the {key!r} of a {message['type']} message must be a finite number")
    return float(integer(message, key))


def text(message: Message, key: str) -> str:
    """Returns a text field of a message.

    Raises:
        ValueError: the field is missing or has another type.
    """
    value = message.get(key)
    if not isinstance(value, str):
        raise ValueError(f"the {key!r} of a {message['type']} message must be a text")
    return value


def ranks(message: Message, key: str) -> frozenset[int]:
    """Returns a field of a message that lists ranks.

    Raises:
        ValueError: the field is missing, or is not a list of ranks.
    """
    found = _ranks_in(message.get(key))
    if found is None:
        raise ValueError(f"the {key!r} of a {message['type']} message must be a list of ranks")
    return frozenset(found)


def lists_of_ranks(message: Message, key: str) -> list[tuple[int, ...]]:
    """Returns a field of a message that has lists of ranks, none of which is empty or has a rank twice.

    Raises:
        ValueError: the field is missing, or is something else.
    """
    value = message.get(key)
    found = [_ranks_in(each) for each in value] if isinstance(value, list) else [None]
    lists = [tuple(each) for each in found if each is not None]
    if len(lists) < len(found) or any(len(set(each)) < max(1, len(each)) for each in lists):
        raise ValueError(f"the {key!r} of a {message['type']} message must be a list of lists of ranks")
    return lists


def wires(message: Message, sender: int, size: int) -> list[Sent]:
    """Returns the wires of a pace message.

    Raises:
        ValueError: the field is missing, or is not a list of at most `MOST_WIRES` wires from the sender to other ranks.
    """
    value = message.get("wires")
    if not isinstance(value, list) or len(value) > MOST_WIRES or not all(map(_is_wire, value)):
        raise ValueError(
            f"the 'wires' of a {message['type']} message must be a list of at most {MOST_WIRES} wires"
        )
    found = [Sent(*each) for each in value]
    if any(each.sender != sender or each.receiver >= size for each in found):
        raise ValueError(
            f"the 'wires' of a {message['type']} message must be those of its sender to other ranks"
        )
    return found


def texts(message: Message, key: str) -> tuple[str, ...]:
    """Returns a field of a message that lists texts.

    Raises:
        ValueError: the field is missing, or is not a list of texts.
    """
    value = message.get(key)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"the {key!r} of a {message['type']} message must be a list of texts")
    return tuple(value)


def addresses(message: Message, key: str) -> tuple[str, ...]:
    """Returns a field of a message that lists the addresses of workers.

    Raises:
        ValueError: the field is missing, is not a list of texts, or is longer than any cluster's.
    """
    found = texts(message, key)
    if len(found) > MOST_WORKERS or sum(map(len, found)) > _MOST_ADDRESS_CHARACTERS:
        raise ValueError(
            f"the {key!r} of a {message['type']} message must list at most {MOST_WORKERS} addresses"
        )
    return found


def _ranks_in(value: object) -> list[int] | None:
    """Returns a list of ranks as it is, or None for something else."""
    if isinstance(value, list) and all(type(each) is int and each >= 0 for each in value):
        return value
    return None


def _is_wire(value: object) -> bool:
    if not isinstance(value, list) or len(value) != len(Sent._fields):
        return False
    *counts, seconds = value
    counted = all(type(each) is int and 0 <= each < 1 << 63 for each in counts)
    return counted and type(seconds) in (int, float) and 0 <= seconds < float("inf")
