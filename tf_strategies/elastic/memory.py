"""Keeps the state of training after the last step that this worker has finished, in memory.

The weights are tensors that share the memory of the variables. TensorFlow copies a variable before it next changes it, so a
worker has one copy of what a step changes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Callable, Dict, List, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from tf_strategies.callbacks.backup import Backup
from tf_strategies.callbacks.checkpoint_file import Checkpoint, pack, parse
from tf_strategies.callbacks.exchange import of_every_worker
from tf_strategies.callbacks.resuming import Resuming, place_name
from tf_strategies.elastic.departure import Departure
from tf_strategies.errors import BootstrapError
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import (
    adds_up,
    build_optimizer,
    is_agreed,
    metric_variables,
    replicas_of,
    training_variables,
)
from tf_strategies.keras.types import Model, Variable
from tf_strategies.texts import utf8
from tf_strategies.types import JsonObject

__all__ = ["KeepsState", "Memory"]

Values = Dict[str, List[tf.Tensor]]
"""The values of variables on the replicas of this worker, by the name of the variable."""


class Moment(NamedTuple):
    """The state after a step.

    Attributes:
        position: the position of training and the states of callbacks. Without facts: before the first step.
        values: the values of variables that do not add up over replicas.
        sums: the sums over all replicas of the others, such as those of metrics, by name.
    """

    position: Checkpoint
    values: Values
    sums: Dict[str, np.ndarray]

    @property
    def is_nowhere(self) -> bool:
        """Whether it is no moment of training, but stands for that of another worker."""
        return self.position.facts == _NOWHERE

    @property
    def place(self) -> List[int]:
        """The epoch and the number of its batches, from 0."""
        return [self.position.facts.get("epoch", -1), self.position.facts.get("batches", 0)]


_NOWHERE: JsonObject = {"epoch": -2}  # before the beginning: the place of a newcomer


def _nowhere() -> Moment:
    return Moment(Checkpoint(dict(_NOWHERE), {}), {}, {})


class Memory:
    """Holds the last moment of one `fit`, over all its attempts.

    Attributes:
        moment: where a further attempt continues; None before the first attempt has begun.
        on_restored: is called with the place from which an attempt continues.
        on_ready: is called when this worker has the state with which the attempt begins, and all others have begun it.
        on_caught_up: is called when this worker has all variables that the others have.
        on_step: is called after each step.
        continues: whether this is a further attempt.
    """

    def __init__(self) -> None:
        self.moment: Optional[Moment] = None
        self._newest: Optional[Moment] = None
        self.on_restored: Callable[[str], None] = lambda place: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_caught_up: Callable[[], None] = lambda: None
        self.on_step: Callable[[], None] = lambda: None
        self.continues = False

    def keep(self, moment: Moment) -> None:
        """Takes a moment. If it may be the end of an epoch of unknown length, it counts only when the next one has come.

        Keras has no logs for an epoch that continues without a batch.
        """
        facts = moment.position.facts
        if facts and facts["batches"] and facts["place"]["steps"] is None:
            self.moment, self._newest = self._newest or self.moment, moment
        else:
            self.moment, self._newest = moment, None

    @property
    def waits(self) -> bool:
        """Whether the last moment does not count yet."""
        return self._newest is not None

    def confirm(self) -> bool:
        """Makes the last moment count. Returns True if it has waited for that."""
        waited = self.waits
        self.moment, self._newest = self._newest or self.moment, None
        return waited

    def begin_again(self) -> None:
        """Forgets a moment that does not count yet."""
        self._newest = None

    def begin_nowhere(self) -> None:
        """Takes a moment before all others, so that this worker takes over the moment of another one."""
        self.moment, self.continues = _nowhere(), True

    @property
    def place(self) -> str:
        """The place of the last moment, for messages."""
        if self.moment is None or self.moment.place[0] < 0:
            return "the beginning"
        epoch, batches = self.moment.place
        return place_name(epoch, batches)


class KeepsState(Resuming):
    """The callback that keeps moments, and begins a further attempt of a `fit` at the last one.

    Args:
        memory: where it keeps them.
        copy_every: the number of batches between two moments.
        departure: finds the place at which workers leave.
    """

    def __init__(self, memory: Memory, copy_every: int, departure: Departure) -> None:
        super().__init__("elastic=", "another worker", copy_every, delete=False, each_epoch=True)
        self._memory, self._departure = memory, departure

    def make_backup(self) -> Backup:
        return _MemoryBackup(self._memory, self.model, self.strategy)

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        self._memory.on_caught_up()  # Keras 2 makes the variables of metrics in its first step.
        super().on_train_batch_end(batch, logs)
        self._memory.on_step()

    def leaves_here(self) -> bool:
        return self._departure.leaves_here()

    def leave(self, place: str) -> None:
        self._departure.leave(place)

    def forget_fit(self) -> None:
        """Removes what an attempt that failed has left in the model."""
        if self._fit is not None:
            self._fit.forget()
            self._fit = None


class _MemoryBackup(Backup):
    """Saves to a Memory. `save` and `restore` are collectives."""

    def __init__(self, memory: Memory, model: Model, strategy: Optional[GroupStrategy]) -> None:
        self._memory, self._model, self._strategy = memory, model, strategy
        self._lacks_metrics = False

    def save(self, moment: Checkpoint, metrics: Dict[str, Variable]) -> None:
        variables = {**training_variables(self._model), **metrics}
        summed = {name: each for name, each in variables.items() if adds_up(each)}
        values = {
            name: [part.read_value() for part in replicas_of(each)]
            for name, each in variables.items()
            if name not in summed
        }
        self._memory.keep(Moment(moment, values, self._sums(summed)))

    @property
    def waits(self) -> bool:
        return self._memory.waits

    def confirm(self) -> bool:
        return self._memory.confirm()

    def restore(self) -> Optional[Checkpoint]:
        memory = self._memory
        memory.begin_again()
        if (memory.moment is None or memory.moment.is_nowhere) and self._model.built:
            build_optimizer(self._model)
        if memory.moment is None:
            self.save(Checkpoint({}, {}), {})
        memory.moment = self._farthest(memory.moment or _nowhere())
        found = self._take_over(memory.moment) if memory.continues else None
        memory.on_ready()
        if not self._lacks_metrics:
            memory.on_caught_up()
        return found

    def _take_over(self, moment: Moment) -> Optional[Checkpoint]:
        self._memory.on_restored(self._memory.place)
        variables = training_variables(self._model)
        for name, variable in variables.items():
            if name in moment.values:
                for part, value in zip(replicas_of(variable), moment.values[name]):
                    part.assign(value)
            elif name in moment.sums:
                for replica, part in enumerate(replicas_of(variable)):
                    total = moment.sums[name]
                    part.assign(total if self._is_first and replica == 0 else np.zeros_like(total))
        facts, arrays = moment.position
        if not facts:
            return None
        described: JsonObject = {}
        metrics: Dict[str, np.ndarray] = {}
        for name, total in moment.sums.items():
            if name not in variables:
                described[name] = {"label": name, "each": True, "sum": True, "replicas": 1}
                metrics[name] = total[np.newaxis]
        for name, parts in moment.values.items():
            if name not in variables:
                described[name] = {"label": name, "each": False, "sum": False, "replicas": 0}
                metrics[name] = parts[0].numpy()
        return Checkpoint({**facts, "variables": described}, {**arrays, **metrics})

    def end(self, *, delete: bool, saved: bool) -> None:
        del delete, saved

    @property
    def _is_first(self) -> bool:
        return self._strategy is None or self._strategy.rank == 0

    def _sums(self, variables: Dict[str, tf.Variable]) -> Dict[str, np.ndarray]:
        """Returns the sums over all replicas of all workers."""
        parts = {
            name: np.asarray(sum(part.numpy() for part in replicas_of(each)), each.dtype.as_numpy_dtype)
            for name, each in variables.items()
        }
        if self._strategy is None or not parts:
            return parts
        flat = np.concatenate([np.ravel(part).astype(np.float64) for part in parts.values()])
        total = self._strategy.gather(tf.constant(flat[np.newaxis]), axis=0).numpy().sum(axis=0)
        sums, start = {}, 0
        for name, part in parts.items():
            end = start + np.size(part)
            sums[name] = total[start:end].reshape(np.shape(part)).astype(part.dtype)
            start = end
        return sums

    def _farthest(self, mine: Moment) -> Moment:
        """Returns the moment of the worker that is farthest. Of variables that differ between workers, it keeps its own."""
        strategy = self._strategy
        if strategy is None:
            return mine
        variables = training_variables(self._model)
        text = json.dumps([mine.place, _digest(variables), bool(metric_variables(self._model))])
        places, models, have_metrics = zip(*map(json.loads, strategy.exchange(text, "the last step")))
        self._lacks_metrics = any(have_metrics) and not have_metrics[strategy.rank]
        if len(set(map(tuple, places))) == 1:
            return mine
        first = places.index(max(places))
        if models[strategy.rank] != models[first]:
            raise BootstrapError(
                f"{strategy.name_of(strategy.rank)} has other variables than {strategy.name_of(first)}, so it cannot take over "
                "its state: run the same script, and build the model before fit, for example with a keras.Input"
            )
        sent = pack(_as_checkpoint(mine, variables)) if strategy.rank == first else b""
        found = parse(of_every_worker(strategy, sent)[first], "of another worker")
        values = dict(mine.values)
        for name, variable in variables.items():
            if is_agreed(variable):
                parts = values.get(name) or [part.read_value() for part in replicas_of(variable)]
                agreed = strategy.of_worker(first, parts[0], name)
                values[name] = [agreed] * len(parts)
        facts = dict(found.facts)
        sums = {name: found.arrays[f"sums/{name}"] for name in facts.pop("sums")}
        for name in facts.pop("others"):
            values.setdefault(name, [tf.constant(found.arrays[f"others/{name}"])])
        arrays = {
            name: each for name, each in found.arrays.items() if not name.startswith(("sums/", "others/"))
        }
        return Moment(Checkpoint(facts, arrays), values, sums)


def _as_checkpoint(moment: Moment, variables: Dict[str, tf.Variable]) -> Checkpoint:
    """Returns a moment as one object, without the values of these variables."""
    sums = {f"sums/{name}": total for name, total in moment.sums.items()}
    others = {name: parts[0].numpy() for name, parts in moment.values.items() if name not in variables}
    facts, arrays = moment.position
    named = {f"others/{name}": value for name, value in others.items()}
    return Checkpoint(
        {**facts, "sums": list(moment.sums), "others": list(others)}, {**arrays, **sums, **named}
    )


def _digest(variables: Dict[str, tf.Variable]) -> str:
    """Returns a text that is equal for models whose variables have the same numbers, shapes and dtypes."""
    listed = [f"{name} {each.shape} {each.dtype}" for name, each in variables.items()]
    return hashlib.blake2b(utf8("\n".join(listed)), digest_size=16).hexdigest()
