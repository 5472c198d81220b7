"""Defines the error for a lost parameter server."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["ServerLostError"]


class ServerLostError(tf.errors.UnavailableError):
    """Reports that a parameter server no longer answers, and that its variables are lost.

    The message names the server, its address and the remedy.
    """

    def __init__(self, message: str) -> None:
        super().__init__(None, None, message)
