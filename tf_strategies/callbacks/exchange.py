"""Exchanges bytes between the workers of a strategy. The functions are collectives."""

from __future__ import annotations

from typing import List, Optional

import numpy as np
import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy

__all__ = ["from_worker", "of_every_worker"]

_WORD = np.dtype(np.int64)
_WORDS_AT_ONCE = 8 << 20


def of_every_worker(strategy: Optional[GroupStrategy], data: bytes) -> List[bytes]:
    """Returns the bytes of each worker, by rank. `strategy` is None for a single process."""
    if strategy is None:
        return [data]
    lengths = _gather(strategy, np.array([len(data)], _WORD))
    gathered = _gather(strategy, _words(data))
    ends = np.cumsum([_count_words(length) for length in lengths])
    parts = np.split(gathered, ends[:-1])
    return [part.tobytes()[:length] for part, length in zip(parts, lengths)]


def from_worker(strategy: Optional[GroupStrategy], rank: int, data: bytes) -> bytes:
    """Returns the bytes of one worker on all workers. The arguments of other workers are ignored."""
    if strategy is None:
        return data
    mine = data if strategy.rank == rank else b""
    length = int(_gather(strategy, np.array([len(mine)], _WORD))[rank])
    words = _words(mine)
    starts = range(0, _count_words(length), _WORDS_AT_ONCE)
    parts = [_gather(strategy, words[start : start + _WORDS_AT_ONCE]) for start in starts]
    return b"".join(part.tobytes() for part in parts)[:length]


def _words(data: bytes) -> np.ndarray:
    return np.frombuffer(data.ljust(_count_words(len(data)) * _WORD.itemsize, b"\0"), _WORD)


def _count_words(length: int) -> int:
    return -(-int(length) // _WORD.itemsize)


def _gather(strategy: GroupStrategy, words: np.ndarray) -> np.ndarray:
    return strategy.gather(tf.constant(words), axis=0).numpy()
