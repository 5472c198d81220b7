"""Numbers the calls of `fit` and of `ElasticState.run` of a script, so that a worker that starts again joins the same one."""

from __future__ import annotations

import itertools

__all__ = ["CONTINUES", "next_number"]

CONTINUES = "the call that continues"  # the name of the exchange of numbers

_numbers = itertools.count(1)  # of all strategies


def next_number() -> int:
    """Returns the number of a call that begins."""
    return next(_numbers)
