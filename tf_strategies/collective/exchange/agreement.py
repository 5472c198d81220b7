"""Compares texts that must be equal on all workers, before a difference can block or corrupt training."""

from __future__ import annotations

from typing import Sequence

import numpy as np
import tensorflow as tf

from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.session_graphs.side_thread import eagerly
from tf_strategies.texts import utf8

__all__ = ["exchange_texts", "require_agreement", "require_equal_texts"]

_END = -1


def exchange_texts(group: WorkerGroup, text: str, name: str) -> list:
    """Returns the text of every worker, by rank.

    A collective. It runs at once, also while a graph is being built. A newcomer takes its own text for those of the others.
    """
    if group.is_newcomer:
        return [text] * group.size
    codes = np.frombuffer(utf8(text), dtype=np.uint8).astype(np.int32)

    def gather() -> np.ndarray:
        with tf.init_scope():
            return group.all_gather(tf.constant(np.append(codes, np.int32(_END))), name=name).numpy()

    gathered = eagerly(gather)
    parts = np.split(gathered, np.flatnonzero(gathered == _END) + 1)[: group.size]
    return [part[:-1].astype(np.uint8).tobytes().decode("utf-8") for part in parts]


def require_agreement(group: WorkerGroup, what: str, text: str) -> None:
    """Raises an error on all workers if their texts differ.

    Args:
        group: the workers.
        what: the subject of the message: "the dataset given to fit".
        text: the text of this worker.

    Raises:
        ValueError: the texts differ. The message names the first worker that differs from worker 0, and shows
            both texts.
    """
    if group.size == 1:
        return
    require_equal_texts(group, what, exchange_texts(group, text, name=f"agreement on {what}"))


def require_equal_texts(group: WorkerGroup, what: str, texts: Sequence[str]) -> None:
    """Does the same as `require_agreement`, given the texts of all workers by rank. Not a collective."""
    for rank, other in enumerate(texts):
        if other != texts[0]:
            raise ValueError(
                f"{what} differs between workers: {group.name_of(0)} has {texts[0]}, but {group.name_of(rank)} has {other}; "
                "every worker must run the same script with the same settings"
            )
