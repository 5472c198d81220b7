"""Provides one seed for random operations that must be equal on all workers."""

from __future__ import annotations

import contextlib
import itertools
import random
import zlib
from typing import ContextManager, NamedTuple

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.agreement import exchange_texts
from tf_strategies.collective.worker_group import WorkerGroup

__all__ = ["SharedSeed", "draw_seed"]

_calls = itertools.count()


class SharedSeed(NamedTuple):
    """A seed that all workers know.

    Attributes:
        number: the seed, in [0, 2^32).
        is_seeded: whether the global seeds of the workers were equal already.
    """

    number: int
    is_seeded: bool

    def opened(self) -> ContextManager[None]:
        """Opens a context in which random operations of datasets have equal seeds on all workers."""
        return contextlib.nullcontext() if self.is_seeded else compat.seeded_ops(self.number % (2**31 - 1))


def draw_seed(group: WorkerGroup) -> SharedSeed:
    """Returns a seed for random operations of datasets, which differs each time. A collective.

    Global seeds that are already equal are kept, so that a seeded script gives the same order with any number
    of workers. So is the numbering of eager operations. Otherwise both are drawn from the state of Python's
    `random` on worker 0, which `keras.utils.set_random_seed` seeds.
    """
    before = compat.op_seed()
    drawn = zlib.crc32(repr((random.getstate(), next(_calls))).encode())
    texts = exchange_texts(group, f"{before},{compat.next_op_number()} {drawn}", name="seed to shuffle by")
    shared = int(texts[0].partition(" ")[2])
    return SharedSeed(shared, before is not None and len({text.partition(" ")[0] for text in texts}) == 1)
