"""Lets the workers compare their calls before they send values."""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from typing import Callable, Iterator, List, TypeVar

import tensorflow as tf

from tf_strategies.collective.exchange.agreement import exchange_texts
from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.native.errors import naming_lost_workers
from tf_strategies.texts import described
from tf_strategies.types import Json, JsonObject

__all__ = ["Rendezvous", "rendezvous_of"]

_T = TypeVar("_T")
_NAME = "a call of the strategy"
_SHOWN = 600
_WHY_LENGTH = 2000


class Rendezvous:
    """Compares the calls of the workers of a group. One worker makes one call after another.

    A call that differs between workers, or that one worker cannot make, is an error on all of them. The group stays usable.

    Args:
        group: the workers.

    Attributes:
        group: the workers.
        turn: the call whose block this worker is in; "" outside of such blocks. In the block there are no other calls.
    """

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group
        self.turn = ""
        self._lock = threading.Lock()

    def require_possible(self, call: str) -> None:
        """Raises RuntimeError if this call would be wrong here, on every worker. Not a collective."""
        if self.turn:
            raise RuntimeError(
                f"{call} in the block of {self.turn}, at whose end the other workers wait; call it after the block"
            )
        if not tf.executing_eagerly():
            raise RuntimeError(
                f"{call} in a tf.function or a graph: it takes effect at once, when the function is traced; call it outside, "
                "or use tf.distribute.get_replica_context().all_reduce in a replica function"
            )
        if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
            raise RuntimeError(
                f"{call} in a replica function, which several replicas run; call it outside of strategy.run, or use "
                "tf.distribute.get_replica_context().all_reduce"
            )

    def meet(self, call: str, error: str = "", **note: Json) -> List[JsonObject]:
        """Waits until all workers make this call, and returns the notes of each, by rank.

        Args:
            call: the call with all that must be equal, for comparison and for messages.
            error: the error of this worker, which cannot make the call; "" if it can. The caller raises it.
            note: values for JSON that the other workers receive.

        Raises:
            ValueError: another worker makes another call, or cannot make it.
            WorkerLostError: another worker was lost.
            tf.errors.DeadlineExceededError: another worker makes no call within the timeout of the group.
        """
        if self.group.size == 1:
            return [note]
        text = json.dumps({"call": call, "error": error, "note": note})
        with self._lock, _naming(call, self.group):
            texts = exchange_texts(self.group, text, _NAME)
        messages = [_parsed(each, self.group.name_of(rank)) for rank, each in enumerate(texts)]
        if len(messages) != self.group.size:
            raise ValueError(f"{call}: {len(messages)} of {self.group.size} workers have sent a message")
        if not error:
            self._require_no_errors(call, [each["error"] for each in messages])
            self._require_equal([each["call"] for each in messages])
        return [each["note"] for each in messages]

    def prepare(self, call: str, function: Callable[[], _T]) -> _T:
        """Returns the result of a function that checks this worker's arguments.

        If it fails, the other workers receive the error instead of waiting for this one.
        """
        try:
            return function()
        except Exception as error:
            self.meet(call, described(error, _WHY_LENGTH))
            raise

    @contextlib.contextmanager
    def sending(self, call: str) -> Iterator[None]:
        """Opens the context in which a call sends its values."""
        with self._lock, _naming(call, self.group), tf.device("CPU:0"):
            yield

    def _require_no_errors(self, call: str, errors: List[str]) -> None:
        for rank, error in enumerate(errors):
            if error:
                raise ValueError(f"{call}: {self.group.name_of(rank)} cannot take part: {error}")

    def _require_equal(self, calls: List[str]) -> None:
        for rank, call in enumerate(calls):
            if call != calls[0]:
                first, other = _where_they_differ(calls[0], call)
                raise ValueError(
                    f"the workers make different calls: {self.group.name_of(0)} calls {first}, but {self.group.name_of(rank)} "
                    f"calls {other}; make the same calls in the same order on every worker"
                )


_all: weakref.WeakKeyDictionary[WorkerGroup, Rendezvous] = weakref.WeakKeyDictionary()


def rendezvous_of(group: WorkerGroup) -> Rendezvous:
    """Returns the rendezvous of a group, which its strategies share."""
    found = _all.get(group)
    if found is None:
        found = _all[group] = Rendezvous(weakref.proxy(group))
    return found


@contextlib.contextmanager
def _naming(call: str, group: WorkerGroup) -> Iterator[None]:
    try:
        with naming_lost_workers(lambda: not group.usable, lambda: group.failure):
            yield
    except tf.errors.DeadlineExceededError as error:
        raise tf.errors.DeadlineExceededError(error.node_def, error.op, f"{call}: {error.message}") from None


def _parsed(text: str, name: str) -> JsonObject:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    kinds = {"call": str, "error": str, "note": dict}
    if not isinstance(message, dict) or any(not isinstance(message.get(key), kinds[key]) for key in kinds):
        raise ValueError(f"{name} has sent a message that cannot be read: {text[:_SHOWN]!r}")
    return message


def _where_they_differ(one: str, other: str) -> tuple:
    """Returns two texts, or parts of them around the first difference if they are long."""
    if max(len(one), len(other)) <= _SHOWN:
        return one, other
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    start = max(0, at - _SHOWN // 2)
    head = f"{one[:60]} ... " if start else ""
    return tuple(f"{head}{text[start : start + _SHOWN]} ..." for text in (one, other))
