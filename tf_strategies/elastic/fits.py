"""Calls `fit` again after workers were lost or have joined, so that it continues after the last step that was finished."""

from __future__ import annotations

import logging
from typing import Callable, ContextManager, Generic, List, Optional, Protocol, Sequence, Tuple, TypeVar, cast

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.elastic.call_numbers import next_number, of_the_same_call
from tf_strategies.elastic.changes import Changed, described_changes
from tf_strategies.elastic.csv_files import continue_file
from tf_strategies.elastic.departure import Departure, Leavable
from tf_strategies.elastic.keeps_state import KeepsState
from tf_strategies.elastic.memory import Memory
from tf_strategies.elastic.rehearsal import may_change_functions, rehearse
from tf_strategies.elastic.replay import Replay
from tf_strategies.errors import BootstrapError
from tf_strategies.keras.fit_types import Callback, Callbacks, CSVLogger
from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.model_state import forget_loops, optimizers_of
from tf_strategies.keras.types import Model
from tf_strategies.options import Elastic
from tf_strategies.texts import described
from tf_strategies.types import Kwargs, Result

__all__ = ["ElasticFits"]

_log = logging.getLogger("tf_strategies")

_WHY_LENGTH = 300
_FURTHER_OPTIMIZERS = (
    "the model has optimizers beside the one that it is compiled with. If a worker is lost, their state is not put back to that "
    "before the step that is repeated, and no worker can join later; restart all workers from a backup where this matters"
)


class DrawnSeed(Protocol):
    """A seed that all workers know: a NamedTuple of JSON values."""

    @property
    def is_seeded(self) -> bool:
        """Whether the global seeds of the workers were equal already, which are then used."""


Seed = TypeVar("Seed", bound=DrawnSeed)


class Reformable(Leavable, Protocol):
    """A strategy whose group can form again."""

    can_reform: bool
    is_newcomer: bool
    began_with: int
    may_keep_functions: bool

    def reform(self) -> Changed:
        """Becomes the strategy of the group that follows."""

    def join_fit(self, number: int) -> Changed:
        """Joins the others in a call of `fit`."""

    def step_ended(self) -> None:
        """Notes the end of a step. Raises BootstrapError if another group follows this one."""

    def blame_newcomers(self, why: str) -> None:
        """Ends a group whose workers differ, so that those that joined last leave it."""

    def leave_because(self, why: str) -> None:
        """Leaves the group at once, so that the others go on."""

    def caught_up(self) -> None:
        """Notes that this worker has all variables of the others, and makes further ones together with them."""

    def admit(self, fit: Optional[int]) -> None:
        """Lets newcomers join this call of `fit`; None: none."""

    def suiting_functions(self, *, has_newcomers: bool) -> Optional[List[str]]:
        """Returns a text for each function that was traced, with its collectives; None if one does not suit the present group."""

    def rehearsing(self) -> ContextManager[None]:
        """Opens the context in which a newcomer takes a step by itself, to trace the functions of the others' group."""

    def reuse_functions(self, can: bool) -> None:
        """Lets functions that were traced for former groups use this one from now on, or never again."""

    def begin_local_steps_again(self, models: Sequence[Model]) -> None:
        """Notes that models are put back to an average."""

    def running_elastically(self, what: str) -> ContextManager[None]:
        """Opens the context of a call of `fit` or `run`, which cannot be within another one."""


class ElasticFits(Generic[Seed]):
    """Runs the calls of `fit` of a strategy.

    Args:
        strategy: the strategy.
        elastic: its options.
        seed_of: makes a seed of its fields, which a newcomer has received.
    """

    def __init__(
        self, strategy: Reformable, elastic: Elastic, seed_of: Callable[[Sequence[int]], Seed]
    ) -> None:
        self._strategy, self._elastic, self._seed_of = strategy, elastic, seed_of
        self._running: Optional[_Fit[Seed]] = None
        self._is_inner = False

    def keep_fitting(self, model: Model, arguments: Kwargs, fit: Callable[..., Result]) -> Result:
        """Does the same as `WorkerStrategy.keep_fitting`.

        Raises:
            BootstrapError: workers were lost, and this worker cannot go on.
        """
        if self._running is None:
            with self._strategy.running_elastically("fit"):
                return self._keep_fitting(model, arguments, fit)
        before, self._is_inner = self._is_inner, True  # a `fit` of a callback, which ends with the outer one
        try:
            return fit()
        finally:
            self._is_inner = before

    def _keep_fitting(self, model: Model, arguments: Kwargs, fit: Callable[..., Result]) -> Result:
        running = self._running = _Fit(
            self._strategy, model, arguments, self._elastic, next_number(), self._seed_of
        )
        try:
            reformed = self._join(running, fit) if self._strategy.is_newcomer else None
            with running.departure:
                return self._attempt_until_done(running, reformed, fit)
        except BaseException as error:
            if running.is_trial:
                self._strategy.leave_because(described(error, _WHY_LENGTH))
            raise
        finally:
            running.end()
            self._running = None

    def _join(self, running: _Fit[Seed], fit: Callable[..., Result]) -> Changed:
        self._is_inner = True
        try:
            running.rehearse(fit)
        finally:
            self._is_inner = False
        return running.join()

    def _attempt_until_done(
        self, running: _Fit[Seed], reformed: Optional[Changed], fit: Callable[[], Result]
    ) -> Result:
        while True:
            try:
                if reformed is not None:  # another worker may be lost meanwhile
                    running.begin_again(reformed)
                with running.departure.attempt():
                    result = fit()
                    running.finish()
                return result
            except ValueError as error:
                if not running.may_blame(reformed):
                    raise
                self._strategy.blame_newcomers(described(error, _WHY_LENGTH))
                if not self._strategy.can_reform:
                    raise
            except (tf.errors.OpError, BootstrapError):
                if not self._strategy.can_reform:
                    raise
                if not running.can_continue:
                    self._strategy.abandon(running.obstacle)
                    raise
            reformed = running.reform()

    @property
    def can_continue(self) -> bool:
        """Whether a `fit` runs that goes on when workers are lost or join."""
        return self._running is not None and not self._is_inner and self._running.can_continue

    def callbacks(self) -> List[Callback]:
        """Returns the callbacks of the running `fit`."""
        return [] if self._running is None or self._is_inner else [self._running.callback]

    def drawn(self, draw: Callable[[], Seed]) -> Seed:
        """Returns a seed that `draw` has drawn. A further attempt of a `fit` gets those of the first one."""
        return draw() if self._running is None or self._is_inner else self._running.drawn(draw)


class _Fit(Generic[Seed]):
    """One call of `fit`, with all its attempts.

    Attributes:
        callback: keeps the state of training.
        departure: lets this worker leave when SIGTERM asks it to end.
        obstacle: why this worker cannot go on when others are lost, or "".
    """

    def __init__(
        self,
        strategy: Reformable,
        model: Model,
        arguments: Kwargs,
        elastic: Elastic,
        number: int,
        seed_of: Callable[[Sequence[int]], Seed],
    ) -> None:
        self._strategy, self._model, self._number, self._seed_of = strategy, model, number, seed_of
        self._callbacks: Callbacks = arguments.get("callbacks")
        self._memory = Memory()
        self._memory.on_ready = self._ready
        self._memory.on_caught_up = strategy.caught_up
        self._memory.on_step = self._step_ended
        self._on_trial = self._took_step = False
        self._has_rehearsed = False
        self._seeds: List[Seed] = []
        self._appends: List[Tuple[CSVLogger, bool]] = []
        self._drawn = 0
        self._random_state = [compat.op_seed(), compat.next_op_number()]
        self._replay = Replay(arguments.get("x"), arguments.get("validation_data"))
        self.obstacle = self._replay.obstacle or _obstacle(model, self._callbacks)
        self.departure = Departure(strategy, self.can_continue, elastic.min_workers)
        self.callback = KeepsState(self._memory, elastic.copy_every, self.departure)
        if self.obstacle and strategy.rank == 0:
            _log.warning("fit will end when a worker is lost: %s", self.obstacle)
        if len(optimizers_of(model)) > 1 and strategy.rank == 0:
            _log.warning(_FURTHER_OPTIMIZERS)

    @property
    def name(self) -> str:
        return self._strategy.name_of(self._strategy.rank)

    @property
    def _is_new(self) -> bool:
        """Whether this worker has not received the state of the others yet."""
        return self._memory.moment is not None and self._memory.moment.is_nowhere

    @property
    def can_continue(self) -> bool:
        return not self.obstacle

    def rehearse(self, fit: Callable[..., Result]) -> None:
        """Takes a step before this newcomer joins the others, so that they need not wait until it has traced its functions."""
        if not self.can_continue or may_change_functions(_listed(self._callbacks)):
            return
        if self._strategy.may_keep_functions:
            self._has_rehearsed = rehearse(self._strategy.rehearsing(), fit, self.name)

    def join(self) -> Changed:
        """Waits until this worker, which has started while the others train, is in their group.

        Raises:
            BootstrapError: it cannot join.
        """
        if self.obstacle:
            raise BootstrapError(f"{self.name} cannot join the others in fit: {self.obstacle}")
        self._memory.begin_nowhere()
        reformed = self._strategy.join_fit(self._number)
        self._on_trial = True
        return reformed

    @property
    def is_trial(self) -> bool:
        """Whether this worker has joined the others, but has not taken a step with them yet."""
        return self._on_trial

    def may_blame(self, reformed: Optional[Changed]) -> bool:
        """Returns True if a difference between workers can be a fault of others that have just joined."""
        return reformed is not None and bool(reformed.joined) and not self._on_trial and not self._took_step

    def _step_ended(self) -> None:
        self._on_trial, self._took_step = False, True
        if self.can_continue:
            self._strategy.step_ended()

    def _ready(self) -> None:
        if self.can_continue:
            self._strategy.admit(self._number)

    def finish(self) -> None:
        """Ends the call together with the other workers. A collective.

        Newcomers are not admitted any more before the first worker has left: it would not notice that the group ends.
        No worker needs the backup any more when all have come here.
        """
        self._strategy.admit(None)
        self._strategy.exchange("", "the end of fit")
        self.callback.delete_file()

    def reform(self) -> Changed:
        """Ends an attempt, and waits until the next group has formed."""
        self.callback.forget_fit()
        return self.departure.reformed(self._strategy.reform)

    def begin_again(self, reformed: Changed) -> None:
        """Prepares the next attempt. A collective."""
        epoch, reuses = self._meet(has_newcomers=bool(reformed.joined))
        self._strategy.reuse_functions(reuses)
        self._memory.continues = True
        self._took_step = False
        self._replay.rewind()
        self._drawn = 0
        forget_loops(self._model, keeps_functions=reuses)
        self._strategy.begin_local_steps_again([self._model])
        if self._strategy.rank == 0:
            self._continue_files(epoch)
        self._memory.on_restored = lambda place: _log.warning(
            "%s", described_changes(reformed, self._strategy, place)
        )

    def end(self) -> None:
        """Puts back what the attempts have changed of the user's callbacks."""
        self._strategy.admit(None)
        for file, appends in self._appends:  # the first change last
            file.append = appends

    def _meet(self, *, has_newcomers: bool) -> Tuple[int, bool]:
        """Compares with the other workers in which `fit` they are, and which seeds each has drawn.

        Returns the epoch, and whether the functions of all workers can be used again.
        """
        epoch = 0 if self._memory.moment is None else max(0, self._memory.moment.place[0])
        seeds = None if self._is_new else self._seeds
        can_reuse = self._has_rehearsed if self._is_new else self._took_step
        facts = of_the_same_call(
            self._strategy,
            self._number,
            [
                epoch,
                self._random_state,
                seeds,
                self._strategy.began_with,
                self._strategy.suiting_functions(has_newcomers=has_newcomers) if can_reuse else None,
            ],
        )
        epochs, states, drawn, began_with, functions = zip(*facts)
        if not any(each is not None for each in drawn):
            raise BootstrapError(
                "no worker is left that has taken a step of this fit; start all workers again"
            )
        common = min((each for each in drawn if each is not None), key=len)
        self._seeds = [self._seed_of(fields) for fields in common]
        first = next(rank for rank, each in enumerate(drawn) if each is not None)
        self._strategy.began_with = began_with[first]
        if (
            self._is_new
            and any(seed.is_seeded for seed in self._seeds)
            and states[first] != self._random_state
        ):
            raise BootstrapError(
                f"{self.name} has drawn other random numbers before fit than {self._strategy.name_of(first)}, so it would read "
                "the data in another order and cannot join; do before fit the same on every worker, whenever it starts"
            )
        return int(max(epochs)), _can_be_reused(functions, [each is None for each in drawn])

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


def _can_be_reused(functions: Sequence[Optional[List[str]]], are_new: Sequence[bool]) -> bool:
    """Returns True if all workers can use the functions that they have traced.

    Args:
        functions: of each worker, each with its collectives; None if it has to trace them again.
        are_new: whether each worker is a newcomer. The others must have all functions of newcomers.
    """
    found = [None if each is None else set(each) for each in functions]
    if any(each is None for each in found):
        return False
    others = [each for each, is_new in zip(found, are_new) if not is_new]
    return all(each <= other for each, is_new in zip(found, are_new) if is_new for other in others)


def _obstacle(model: Model, callbacks: Callbacks) -> str:
    """Returns why a `fit` cannot begin again in the middle, or ""."""
    if hasattr(callbacks, "callbacks"):
        return "its CallbackList was made before fit, which adds callbacks of its own; give fit a list of callbacks"
    for name in ("train_step", "test_step"):
        if hasattr(getattr(model, name, None), "get_concrete_function"):
            return (
                f"{name} is a tf.function, which keeps the group of its first call; remove the decorator, since fit traces it "
                "anyway"
            )
    return ""


def _listed(callbacks: Callbacks) -> Sequence[Callback]:
    return callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
