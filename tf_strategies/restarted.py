"""Knows whether the supervisor of this process, such as tfs-run, has started it again while other workers train."""

from __future__ import annotations

import os

__all__ = ["RESTARTED", "was_restarted"]

RESTARTED = "TF_STRATEGIES_RESTARTED"


def was_restarted() -> bool:
    """Returns True if the environment variable `RESTARTED` is 1."""
    return os.environ.get(RESTARTED) == "1"
