"""Provides one seed for random operations that must be equal on all workers."""

from __future__ import annotations

import contextlib
import itertools
import random
import zlib
from typing import Iterator

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.agreement import exchange_texts
from tf_strategies.collective.worker_group import WorkerGroup

__all__ = ["one_op_seed"]

_calls = itertools.count()


@contextlib.contextmanager
def one_op_seed(group: WorkerGroup) -> Iterator[int]:
    """Opens a context in which random operations of datasets have equal seeds on all workers. A collective.

    Global seeds that are already equal are kept, so that a seeded script gives the same order with any number
    of workers. So is the numbering of eager operations. Otherwise both are drawn from the state of Python's
    `random` on worker 0, which `keras.utils.set_random_seed` seeds.

    Yields:
        A number in [0, 2^32) that differs each time, and is equal on all workers.
    """
    before = compat.op_seed()
    drawn = zlib.crc32(repr((random.getstate(), next(_calls))).encode())
    texts = exchange_texts(group, f"{before},{compat.next_op_number()} {drawn}", name="seed to shuffle by")
    shared = int(texts[0].partition(" ")[2])
    if before is not None and len({text.partition(" ")[0] for text in texts}) == 1:
        yield shared
        return
    with compat.seeded_ops(shared % (2**31 - 1)):
        yield shared
