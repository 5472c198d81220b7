"""Numbers the calls of `fit` and of `ElasticState.run` of a script, so that workers continue the same one together."""

from __future__ import annotations

import itertools
import json
from typing import List, Protocol, Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.types import Json

__all__ = ["next_number", "of_the_same_call"]

_numbers = itertools.count(1)  # of all strategies


class Exchanging(Protocol):
    """A strategy whose workers exchange texts."""

    def exchange(self, text: str, what: str) -> List[str]:
        """Returns the text of every worker, by rank."""

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker."""


def next_number() -> int:
    """Returns the number of a call that begins."""
    return next(_numbers)


def of_the_same_call(strategy: Exchanging, number: int, facts: Sequence[Json] = ()) -> List[List[Json]]:
    """Returns the facts of every worker, by rank. A collective of workers that continue a call.

    Args:
        strategy: the strategy.
        number: the number of the call.
        facts: what the others are to know.

    Raises:
        BootstrapError: the workers are in different calls.
    """
    texts = strategy.exchange(json.dumps([number, *facts]), "the call that continues")
    answers = [json.loads(text) for text in texts]
    numbers = [answer[0] for answer in answers]
    if len(set(numbers)) > 1:
        where = ", ".join(f"{strategy.name_of(rank)} in call {each}" for rank, each in enumerate(numbers))
        raise BootstrapError(
            f"a worker was lost while others had begun another call of fit or ElasticState.run ({where}), so they cannot go on "
            "together; start all again"
        )
    return [answer[1:] for answer in answers]
