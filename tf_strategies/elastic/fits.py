"""Calls `fit` again after workers were lost, so that it continues after the last step that was finished."""

from __future__ import annotations

import logging
from typing import Callable, Generic, List, Optional, Protocol, Sequence, Tuple, TypeVar, cast

import tensorflow as tf

from tf_strategies.elastic.csv_files import continue_file
from tf_strategies.elastic.memory import KeepsState, Memory
from tf_strategies.elastic.replay import Replay
from tf_strategies.errors import BootstrapError
from tf_strategies.keras.fit_types import Callback, Callbacks, CSVLogger
from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.model_state import forget_loops
from tf_strategies.keras.types import Model
from tf_strategies.types import Kwargs, Result

__all__ = ["ElasticFits"]

_log = logging.getLogger("tf_strategies")

Seed = TypeVar("Seed")


class Reformed(Protocol):
    """Describes how survivors have formed a group again."""

    lost: List[str]
    seconds: float


class Reformable(Protocol):
    """A strategy whose group can form again."""

    rank: int
    size: int
    can_reform: bool

    def reform(self) -> Reformed:
        """Becomes the strategy of the survivors."""

    def abandon(self) -> None:
        """Lets the survivors go on without this worker."""

    def exchange(self, text: str, what: str) -> List[str]:
        """Returns the text of every worker, by rank."""

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker."""


class ElasticFits(Generic[Seed]):
    """Runs the calls of `fit` of a strategy.

    Args:
        strategy: the strategy.
        copy_every: as in `Elastic`.
    """

    def __init__(self, strategy: Reformable, copy_every: int) -> None:
        self._strategy, self._copy_every = strategy, copy_every
        self._running: Optional[_Fit[Seed]] = None
        self._fits = 0
        self._is_inner = False

    def keep_fitting(self, model: Model, arguments: Kwargs, fit: Callable[[], Result]) -> Result:
        """Does the same as `WorkerStrategy.keep_fitting`.

        Raises:
            BootstrapError: workers were lost, and this worker cannot go on.
        """
        if self._running is not None:  # a `fit` of a callback, which ends with the outer one
            before, self._is_inner = self._is_inner, True
            try:
                return fit()
            finally:
                self._is_inner = before
        self._fits += 1
        running = self._running = _Fit(self._strategy, model, arguments, self._copy_every, self._fits)
        reformed: Optional[Reformed] = None
        try:
            while True:
                try:
                    if reformed is not None:  # another worker may be lost meanwhile
                        running.begin_again(reformed)
                    return fit()
                except (tf.errors.OpError, BootstrapError):
                    if not self._strategy.can_reform:
                        raise
                    if not running.can_continue:
                        self._strategy.abandon()
                        raise
                reformed = running.reform()
        finally:
            running.end()
            self._running = None

    def callbacks(self) -> List[Callback]:
        """Returns the callbacks of the running `fit`."""
        return [] if self._running is None or self._is_inner else [self._running.callback]

    def drawn(self, draw: Callable[[], Seed]) -> Seed:
        """Returns a seed that `draw` has drawn. A further attempt of a `fit` gets those of the first one."""
        return draw() if self._running is None or self._is_inner else self._running.drawn(draw)


class _Fit(Generic[Seed]):
    """One call of `fit`, with all its attempts."""

    def __init__(
        self, strategy: Reformable, model: Model, arguments: Kwargs, copy_every: int, number: int
    ) -> None:
        self._strategy, self._model, self._number = strategy, model, number
        self._callbacks: Callbacks = arguments.get("callbacks")
        self._memory = Memory()
        self.callback = KeepsState(self._memory, copy_every)
        self._seeds: List[Seed] = []
        self._appends: List[Tuple[CSVLogger, bool]] = []
        self._drawn = 0
        self._replay = Replay(arguments.get("x"), arguments.get("validation_data"))
        self._obstacle = self._replay.obstacle or _obstacle(model)
        if self._obstacle and strategy.rank == 0:
            _log.warning("fit will end when a worker is lost: %s", self._obstacle)

    @property
    def name(self) -> str:
        return self._strategy.name_of(self._strategy.rank)

    @property
    def can_continue(self) -> bool:
        return not self._obstacle

    def reform(self) -> Reformed:
        """Ends an attempt, and waits until the survivors have formed a group."""
        self.callback.forget_fit()
        return self._strategy.reform()

    def begin_again(self, reformed: Reformed) -> None:
        """Prepares the next attempt. A collective."""
        epoch = self._meet()
        self._replay.rewind()
        self._drawn = 0
        forget_loops(self._model)
        if self._strategy.rank == 0:
            self._continue_files(epoch)
        head = f"lost: {', '.join(reformed.lost)}. {self.name} trains on with rank {self._strategy.rank} of {self._strategy.size}"
        seconds = f"{reformed.seconds:.1f} s after the failure"
        self._memory.on_restored = lambda place: _log.warning("%s, from %s (%s)", head, place, seconds)

    def end(self) -> None:
        """Puts back what the attempts have changed of the user's callbacks."""
        for file, appends in self._appends:  # the first change last
            file.append = appends

    def _meet(self) -> int:
        """Compares with the other survivors in which `fit` they are, and how many seeds each has drawn. Returns the epoch."""
        epoch = 0 if self._memory.moment is None else max(0, self._memory.moment.place[0])
        texts = self._strategy.exchange(
            f"{self._number} {len(self._seeds)} {epoch}", "the fit that continues"
        )
        numbers, drawn, epochs = zip(*(map(int, text.split()) for text in texts))
        if len(set(numbers)) > 1:
            where = ", ".join(
                f"{self._strategy.name_of(rank)} in fit {number}" for rank, number in enumerate(numbers)
            )
            raise BootstrapError(
                f"a worker was lost while others had begun another fit ({where}), so they cannot go on together; start all again"
            )
        del self._seeds[min(drawn) :]
        return max(epochs)

    def _continue_files(self, epoch: int) -> None:
        for each in _listed(self._callbacks):
            if isinstance(each, classes_of("callbacks", "CSVLogger")):
                file = cast(CSVLogger, each)
                self._appends.insert(0, (file, continue_file(file, epoch)))

    def drawn(self, draw: Callable[[], Seed]) -> Seed:
        if self._drawn == len(self._seeds):
            self._seeds.append(draw())
        self._drawn += 1
        return self._seeds[self._drawn - 1]


def _obstacle(model: Model) -> str:
    """Returns why the steps of a model cannot be traced again, or ""."""
    for name in ("train_step", "test_step"):
        if hasattr(getattr(model, name, None), "get_concrete_function"):
            return (
                f"{name} is a tf.function, which keeps the group of its first call; remove the decorator, since fit traces it "
                "anyway"
            )
    return ""


def _listed(callbacks: Callbacks) -> Sequence[Callback]:
    given = getattr(callbacks, "callbacks", callbacks)
    return given if isinstance(given, (list, tuple)) else [given] if given else []
