"""Lets a training loop go on when workers are lost, leave or join."""

from __future__ import annotations

import json
import logging
from typing import Any, Callable, Iterable, List, Optional, TypeVar, Union, cast

import tensorflow as tf

from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.elastic.call_numbers import next_number
from tf_strategies.elastic.changes import Changed, described_changes
from tf_strategies.elastic.departure import Departure
from tf_strategies.elastic.fits import Reformable
from tf_strategies.elastic.moment import Moment, farthest, moment_of, nowhere, put_back
from tf_strategies.errors import BootstrapError, OptionsError
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import (
    build_optimizer,
    forget_loops,
    metric_variables,
    numbered_variables,
    training_variables,
)
from tf_strategies.keras.types import Model, Variable
from tf_strategies.texts import described

__all__ = ["ElasticState"]

_log = logging.getLogger("tf_strategies")

_WHY_LENGTH = 300

Result = TypeVar("Result")


class ElasticState:
    """Keeps the state of a loop of your own, so that the loop goes on when workers are lost, leave or join.

    `run` calls a function with the loop. The loop calls `commit` after each step. When the group changes, the workers that are
    left form it again, take over the state of the last commit, and call the function again. The function begins where the values
    of the state say. It makes its datasets and its functions of type `tf.function` itself, because those of before belong to the
    last group. Workers that have started again join in the same way.

    With a strategy that has no `elastic=`, or one worker, `run` calls the function once.

    Args:
        strategy: a `CollectiveAllReduceStrategy`. With several workers it needs `elastic=`, or losses end the loop.
        variables: all variables that a step changes, such as weights, those of an optimizer that has been built, and of metrics.
            A compiled Keras model stands for all of its own. They must be the same on all workers.
        values: the values of the state, such as `epoch=0`, which become attributes: numbers, texts, booleans, None, and lists
            and dicts of these. Each worker must have the same.

    Raises:
        OptionsError: the strategy is of another kind, or a value is of another type.

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy()
        >>> with strategy.scope():
        ...     total = tf.Variable(0.0)
        >>> state = tfs.ElasticState(strategy, [total], step=0)
        >>> def loop():
        ...     while state.step < 3:
        ...         total.assign_add(1.0)
        ...         state.step += 1
        ...         state.commit()
        ...     return float(total.numpy())
        >>> state.run(loop)
        3.0
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, variables: Iterable[Union[Variable, Model]], **values: Any
    ) -> None:
        if not hasattr(strategy, "is_newcomer"):
            raise OptionsError(
                f"strategy must be a CollectiveAllReduceStrategy; got {type(strategy).__name__}"
            )
        self._strategy, self._group = cast(GroupStrategy, strategy), cast(Reformable, strategy)
        listed = list(variables)
        self._models: List[Model] = [each for each in listed if hasattr(each, "train_on_batch")]
        self._variables = numbered_variables(each for each in listed if not hasattr(each, "train_on_batch"))
        for number, model in enumerate(self._models):
            build_optimizer(model)
            found = {**training_variables(model), **metric_variables(model)}
            self._variables.update({f"model {number}/{name}": each for name, each in found.items()})
        self._names = tuple(values)
        self._commits, self._on_trial = 0, False
        self._moment: Optional[Moment] = None
        self._departure: Optional[Departure] = None
        for name, value in values.items():
            if hasattr(self, name):
                raise OptionsError(
                    f"{name!r} is a name of ElasticState itself; choose another name for the value"
                )
            setattr(self, name, value)
        self._values()

    def run(self, function: Callable[[], Result]) -> Result:
        """Calls a function, and again after each change of the group. All workers must call it, the same number of times.

        Args:
            function: has no arguments. It must not begin with other work than the state says, and not catch the errors of
                TensorFlow.

        Returns:
            What the function returns.

        Raises:
            BootstrapError: this worker cannot go on: too few are left, or it is cut off from the others.
            SystemExit: SIGTERM has asked this worker to end, and it has left the others in good order.
        """
        if self._departure is not None:
            raise RuntimeError("run was called by the function that run calls")
        group, number = self._group, next_number()
        if not self._strategy.is_elastic:
            return function()
        self._commits, self._on_trial = 0, group.is_newcomer
        self._departure = departure = Departure(group, True)
        try:
            changed = self._join(number) if group.is_newcomer else None
            with departure:
                return self._call_until_done(function, number, changed, departure)
        except BaseException as error:
            if self._on_trial:
                group.leave_because(described(error, _WHY_LENGTH))
            raise
        finally:
            group.admit(None)
            self._departure = self._moment = None

    def commit(self) -> None:
        """Keeps the variables and values as they are now. All workers must call it after the same steps.

        It costs a copy of the variables when they next change. Other workers leave and join here.

        Raises:
            BootstrapError: the group has changed. `run` handles it.
        """
        self._commits += 1
        self._on_trial = False
        if self._departure is None:
            return
        self._moment = moment_of(self._position(), self._variables, self._strategy)
        if self._departure.leaves_here():
            self._departure.leave(f"commit {self._commits}")
        self._group.step_ended()

    def _join(self, number: int) -> Changed:
        self._moment = nowhere()
        return self._group.join_fit(number)

    def _call_until_done(
        self, function: Callable[[], Result], number: int, changed: Optional[Changed], departure: Departure
    ) -> Result:
        group = self._group
        while True:
            try:
                self._begin(number, changed)
                with departure.attempt():
                    result = function()
                    group.admit(None)
                    self._strategy.exchange("", "the end of run")
                return result
            except (tf.errors.OpError, BootstrapError) as error:
                if not group.can_reform:
                    if changed is not None and not group.has_ended():
                        raise _stale(error) from error
                    raise
            try:
                changed = group.reform()
            except BootstrapError as error:
                if departure.is_asked:
                    departure.end(error)
                raise

    def _begin(self, number: int, changed: Optional[Changed]) -> None:
        """Gives all workers the state of the one that is farthest. A collective."""
        strategy = self._strategy
        if changed is not None:
            numbers = [int(each) for each in strategy.exchange(str(number), "the run that continues")]
            if len(set(numbers)) > 1:
                where = ", ".join(
                    f"{strategy.name_of(rank)} in call {each}" for rank, each in enumerate(numbers)
                )
                raise BootstrapError(
                    f"a worker was lost while others had begun another call of run or fit ({where}), so they cannot go on "
                    "together; start all again"
                )
        if self._moment is None:
            self._moment = moment_of(self._position(), self._variables, strategy)
        self._moment, _ = farthest(
            self._moment,
            self._variables,
            strategy,
            remedy="run the same script, and make all variables before ElasticState",
        )
        if changed is not None:
            put_back(self._moment, self._variables, is_first=strategy.rank == 0)
            facts = self._moment.position.facts
            self._commits = facts["epoch"]
            for name, value in json.loads(facts["values"]).items():
                setattr(self, name, value)
            for model in self._models:
                forget_loops(model)
            _log.warning(described_changes(changed, strategy), f"commit {self._commits}")
        self._group.admit(number)
        self._group.caught_up()

    def _position(self) -> Checkpoint:
        return Checkpoint({"epoch": self._commits, "batches": 0, "values": self._values()}, {})

    def _values(self) -> str:
        values = {name: getattr(self, name) for name in self._names}
        try:
            return json.dumps(values, allow_nan=True)
        except (TypeError, ValueError) as error:
            raise OptionsError(
                f"the values of ElasticState must be numbers, texts, booleans, None, or lists and dicts of these: {error}"
            ) from None


def _stale(error: Exception) -> BootstrapError:
    return BootstrapError(
        f"after the group had changed, the loop failed: {described(error, _WHY_LENGTH)}. If it uses a tf.function, a distributed "
        "dataset or an iterator that was made before, make it in the function that run calls"
    )
