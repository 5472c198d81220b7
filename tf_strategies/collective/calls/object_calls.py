"""Calls that broadcast and gather Python objects."""

from __future__ import annotations

from typing import List

import numpy as np
import tensorflow as tf

from tf_strategies.collective.calls.base import Calls
from tf_strategies.objects import decode, encode
from tf_strategies.types import JsonObject, Sendable

__all__ = ["ObjectCalls"]

_MOST_BYTES = 1 << 30


class ObjectCalls(Calls):
    """Offers collectives of simple Python objects."""

    def broadcast_object(self, value: Sendable = None, root: int = 0) -> Sendable:
        """Returns the object of worker `root` on every worker. It also raises the errors of `barrier`.

        Args:
            value: None, a bool, int, float, str or bytes, a NumPy array or scalar of numbers, or a list, tuple or dict of these;
                at most 1 GiB. Nothing is pickled. The objects of other workers than `root` are ignored.
            root: the rank of the worker whose object is sent.

        Raises:
            TypeError: the object, or one in it, has another type.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.broadcast_object({"name": "run 7", "seeds": (1, 2)})
            {'name': 'run 7', 'seeds': (1, 2)}
        """
        call = "broadcast_object"

        def prepare() -> bytes:
            return _encoded(value) if self._group.rank == self._checked_root(root) else b""

        data = self._prepare(call, prepare)
        notes = self._meet(f"{call}(root={root})", length=len(data))
        length = self._checked_length(notes, root)
        mine = np.frombuffer(data, np.uint8) if self._group.rank == root else np.zeros(length, np.uint8)
        with self._sending(call):
            return decode(
                self._group.broadcast(tf.constant(mine), "strategy.broadcast", root).numpy().tobytes()
            )

    def all_gather_object(self, value: Sendable) -> List[Sendable]:
        """Returns the objects of all workers, by rank. It also raises the errors of `barrier`.

        Args:
            value: as for `broadcast_object`.

        Raises:
            TypeError: the object, or one in it, has another type.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.all_gather_object(("a", 1))
            [('a', 1)]
        """
        call = "all_gather_object"
        data = self._prepare(call, lambda: _encoded(value))
        notes = self._meet(f"{call}()", length=len(data))
        lengths = [self._checked_length(notes, rank) for rank in range(self._group.size)]
        mine = tf.constant(np.frombuffer(data, np.uint8))
        with self._sending(call):
            gathered = self._group.all_gather(mine, "strategy.all_gather").numpy().tobytes()
        if len(gathered) != sum(lengths):
            raise ValueError(f"{call}: the workers have sent {len(gathered)} bytes instead of {sum(lengths)}")
        ends = np.cumsum([0, *lengths])
        return [decode(gathered[start:end]) for start, end in zip(ends, ends[1:])]

    def _checked_length(self, notes: List[JsonObject], rank: int) -> int:
        length = notes[rank].get("length")
        if type(length) is not int or not 0 <= length <= _MOST_BYTES:
            raise ValueError(f"{self._group.name_of(rank)} announces an object of {length!r} bytes")
        return length


def _encoded(value: Sendable) -> bytes:
    data = encode(value)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"an object may take at most {_MOST_BYTES} bytes; got one of {len(data)}")
    return data
