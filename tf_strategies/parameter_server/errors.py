"""The error for a server that is lost."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["ServerLostError"]


class ServerLostError(tf.errors.UnavailableError):
    """Says that a parameter server no longer answers, and what it held is lost. Names it, its address and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(None, None, message)
