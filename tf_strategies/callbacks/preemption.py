"""Lets all workers leave a `fit` at the same place when one of them is asked to end by SIGTERM."""

from __future__ import annotations

import contextlib
from typing import Callable, ContextManager, FrozenSet, Iterable, List, Optional, Protocol

from tf_strategies.callbacks.termination import Termination

__all__ = ["Preemption", "Stoppable"]


class Stoppable(Protocol):
    """A strategy whose workers can stop at the same place."""

    def stopping_places(self) -> ContextManager[Callable[[bool], bool]]:
        """Does the same as `GroupStrategy.stopping_places`."""

    def exchange(self, text: str, what: str) -> List[str]:
        """Returns the text of every worker, by rank."""

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker."""


class Preemption(contextlib.ExitStack):
    """Finds the place at which all workers leave a `fit`. It is a context: that of the `fit`.

    Args:
        strategy: the strategy of the model; None for a single process.
        termination: whether this worker is asked to end. If not, it leaves when another worker was asked to.
    """

    def __init__(self, strategy: Optional[Stoppable], termination: Termination) -> None:
        super().__init__()
        self._strategy, self._termination = strategy, termination
        self._stops: Callable[[bool], bool] = bool
        self._workers = 1

    def __enter__(self) -> Preemption:
        super().__enter__()
        if self._strategy is not None:
            self._stops = self.enter_context(self._strategy.stopping_places())
        return self

    def stops_here(self) -> bool:
        """Returns True if all workers leave here. They must call it at the same places of their fits."""
        return self._stops(self._termination.requested)

    def asked(self, is_asked: bool) -> FrozenSet[int]:
        """Returns the ranks that were asked to end. A collective.

        Args:
            is_asked: whether this worker is one of them.
        """
        if self._strategy is None:
            return frozenset({0} if is_asked else ())
        answers = self._strategy.exchange("asked" if is_asked else "", "the signal to end")
        self._workers = len(answers)
        return frozenset(rank for rank, answer in enumerate(answers) if answer)

    def names_of(self, ranks: Iterable[int]) -> str:
        """Returns in words the ranks that were asked to end."""
        strategy, listed = self._strategy, sorted(ranks)
        if strategy is None:
            return "this process"
        if len(listed) == self._workers:
            return "all workers"
        return ", ".join(map(strategy.name_of, listed))
