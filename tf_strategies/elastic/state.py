"""Lets a training loop go on when workers are lost, leave or join."""

from __future__ import annotations

import json
import logging
from typing import Any, Callable, Iterable, List, Optional, Union, cast

import tensorflow as tf

from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.elastic.call_numbers import next_number, of_the_same_call
from tf_strategies.elastic.changes import Changed, described_changes
from tf_strategies.elastic.departure import Departure
from tf_strategies.elastic.fits import Reformable
from tf_strategies.elastic.moment import Moment, farthest, moment_of, nowhere, put_back
from tf_strategies.elastic.reading import Reader
from tf_strategies.errors import BootstrapError, OptionsError
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import (
    build_optimizer,
    forget_loops,
    is_compiled,
    metric_variables,
    numbered_variables,
    training_variables,
)
from tf_strategies.keras.types import Model, Variable
from tf_strategies.texts import described
from tf_strategies.types import Result

__all__ = ["ElasticState"]

_log = logging.getLogger("tf_strategies")

_WHY_LENGTH = 300


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
        if not isinstance(strategy, GroupStrategy):
            raise OptionsError(
                f"strategy must be a CollectiveAllReduceStrategy; got {type(strategy).__name__}"
            )
        self._strategy, self._group = strategy, cast(Reformable, strategy)
        if strategy.batch_is_per_worker:
            raise OptionsError(
                'Elastic(batch="per_worker") is for `fit`; in a loop of your own, make batches of strategy.size times the rows '
                "of a worker, scale the learning rate, and leave batch out"
            )
        listed = list(variables)
        self._models: List[Model] = [each for each in listed if hasattr(each, "train_on_batch")]
        self._variables = numbered_variables(each for each in listed if not hasattr(each, "train_on_batch"))
        for number, model in enumerate(self._models):
            if not is_compiled(model):
                raise OptionsError(
                    f"model {model.name!r} is not compiled: compile it, or list its variables and those of its optimizer"
                )
            build_optimizer(model)
            found = {**training_variables(model), **metric_variables(model)}
            self._variables.update({f"model {number}/{name}": each for name, each in found.items()})
        self._names = tuple(values)
        self._commits, self._on_trial, self._has_committed = 0, False, False
        self._moment: Optional[Moment] = None
        self._departure: Optional[Departure] = None
        self._reader = Reader()
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
            function: has no arguments. It starts where the state says, and does not catch errors of TensorFlow or
                BootstrapError.

        Returns:
            What the function returns.

        Raises:
            BootstrapError: this worker cannot go on: too few are left, or it is cut off from the others.
            RuntimeError: it was called within `fit` or `run` of the same strategy, which is elastic.
            SystemExit: SIGTERM has asked this worker to end, and it has left the others in good order.
        """
        number = next_number()
        if not self._strategy.is_elastic:
            return function()
        with self._group.running_elastically("run"):
            return self._run(function, number)

    def _run(self, function: Callable[[], Result], number: int) -> Result:
        group = self._group
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

        It costs a copy of the variables when they next change. Other workers leave and join here. With local steps it only has
        an effect when the workers have just averaged their weights.

        Raises:
            BootstrapError: the group has changed. `run` handles it.
            OptionsError: a model that takes local steps is not listed.
        """
        if self._departure is not None:
            self._require_models_of_local_steps()
        if any(self._strategy.is_between_averages(model) for model in self._models):
            return
        self._commits += 1
        self._on_trial, self._has_committed = False, True
        if self._departure is None:
            return
        self._moment = moment_of(self._position(), self._variables, self._strategy, self._reader)
        if self._departure.leaves_here():
            self._departure.leave(f"commit {self._commits}")
        self._group.step_ended()

    def _require_models_of_local_steps(self) -> None:
        for model in self._strategy.models_that_differ():
            if not any(model is each for each in self._models):
                raise OptionsError(
                    f"model {model.name!r} takes local steps, and ElasticState does not have it, so it could not go back to an "
                    "average: compile the model and list it, or call strategy.average_weights on it before the loop"
                )

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
                    result = self._call(function, changed)
                    group.admit(None)
                    self._strategy.exchange("", "the end of run")
                return result
            except ValueError as error:
                if changed is None or not changed.joined or self._on_trial or self._has_committed:
                    raise
                group.blame_newcomers(described(error, _WHY_LENGTH))
                if not group.can_reform:
                    raise
            except (tf.errors.OpError, BootstrapError):
                if not group.can_reform:
                    raise
            changed = departure.reformed(group.reform)

    def _call(self, function: Callable[[], Result], changed: Optional[Changed]) -> Result:
        try:
            return function()
        except tf.errors.OpError as error:
            if changed is None or self._has_committed or self._group.can_reform or self._group.has_ended():
                raise
            raise BootstrapError(
                f"after the group had changed, the loop failed before its first commit: {described(error, _WHY_LENGTH)}. If it "
                "uses a tf.function that was made before, make it in the function that run calls"
            ) from error

    def _begin(self, number: int, changed: Optional[Changed]) -> None:
        """Gives all workers the state of the one that is farthest. A collective."""
        strategy = self._strategy
        if changed is not None:
            of_the_same_call(strategy, number)
        if self._moment is None:
            self._moment = moment_of(self._position(), self._variables, strategy, self._reader)
        self._moment, _ = farthest(
            self._moment,
            self._variables,
            strategy,
            remedy="run the same script, and make all variables before ElasticState",
        )
        if self._moment.is_nowhere:
            raise BootstrapError(
                f"{strategy.name_of(strategy.rank)} and the others have all started again, so none has the state of this run; "
                "start all workers again"
            )
        self._has_committed = False
        if changed is not None:
            put_back(self._moment, self._variables, is_first=strategy.rank == 0)
            facts = self._moment.position.facts
            self._commits = facts["epoch"]
            for name, value in json.loads(facts["values"]).items():
                setattr(self, name, value)
            self._group.reuse_functions(False)
            strategy.begin_local_steps_again(self._models)
            for model in self._models:
                forget_loops(model)
                strategy.make_equal(model)
            _log.warning("%s", described_changes(changed, strategy, f"commit {self._commits}"))
        self._group.admit(number)
        self._group.caught_up()

    def _position(self) -> Checkpoint:
        return Checkpoint({"epoch": self._commits, "batches": 0, "values": self._values()}, {})

    def _values(self) -> str:
        values = {name: getattr(self, name) for name in self._names}
        for name, value in values.items():
            if not _comes_back(value):
                raise OptionsError(
                    f"the value {name!r} of ElasticState must be a number, text, boolean, None, or a list or dict of these with "
                    f"texts as keys; got {value!r}"
                )
        return json.dumps(values)


def _comes_back(value: object) -> bool:
    """Returns whether a value is the same after it was written as JSON."""
    if isinstance(value, list):
        return all(map(_comes_back, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _comes_back(each) for key, each in value.items())
    return value is None or type(value) in (bool, int, float, str)
