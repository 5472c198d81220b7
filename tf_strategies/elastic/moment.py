"""The state of training at one moment: the values of variables, and facts. Workers take over that of the one that is farthest.

The values are tensors that share the memory of the variables. When a variable next changes, it takes other memory: see
collective/variables/out_of_place.py. So a worker has one copy of what a step changes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from tf_strategies.callbacks.checkpoint_file import Checkpoint, pack, parse
from tf_strategies.callbacks.exchange import of_every_worker
from tf_strategies.elastic.reading import Reader, Values
from tf_strategies.errors import BootstrapError
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import is_agreed, replicas_of
from tf_strategies.texts import utf8
from tf_strategies.types import JsonObject

__all__ = ["Moment", "farthest", "moment_of", "nowhere", "parts_of", "put_back"]


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


def nowhere() -> Moment:
    return Moment(Checkpoint(dict(_NOWHERE), {}), {}, {})


def moment_of(
    position: Checkpoint, variables: Dict[str, tf.Variable], strategy: Optional[GroupStrategy], reader: Reader
) -> Moment:
    """Returns the moment that is now. A collective if variables add up over replicas.

    Args:
        position: its facts.
        variables: the variables, by name; the same names on all workers.
        strategy: the strategy; None for a single process.
        reader: reads the variables.
    """
    return Moment(position, *reader.read(variables, strategy))


def put_back(moment: Moment, variables: Dict[str, tf.Variable], *, is_first: bool) -> None:
    """Gives variables the values of a moment; the sums go to the first replica of the first worker.

    Args:
        moment: the moment.
        variables: the variables, by name. Those that the moment does not have keep their values.
        is_first: whether this is the first worker.
    """
    for name, parts in parts_of(moment, variables, is_first=is_first).items():
        for part, value in zip(replicas_of(variables[name]), parts):
            part.assign(value)


def parts_of(
    moment: Moment, variables: Dict[str, tf.Variable], *, is_first: bool
) -> Dict[str, List[Union[tf.Tensor, np.ndarray]]]:
    """Returns the values of a moment for the replicas of this worker; arguments as for `put_back`."""
    found = {}
    for name, variable in variables.items():
        count = len(replicas_of(variable))
        if name in moment.values:
            parts = moment.values[name]
            found[name] = parts if len(parts) == count else parts[:1] * count
        elif name in moment.sums:
            total = moment.sums[name]
            found[name] = [total if is_first and each == 0 else np.zeros_like(total) for each in range(count)]
    return found


def farthest(
    mine: Moment,
    variables: Dict[str, tf.Variable],
    strategy: GroupStrategy,
    *,
    remedy: str,
    note: bool = False,
) -> Tuple[Moment, List[bool]]:
    """Returns the moment of the worker that is farthest, and the notes of all. A collective.

    A worker that is as far keeps its own: the slots of optimizers differ between workers if they take local steps.

    Args:
        mine: the moment of this worker.
        variables: the variables, by name. Of those that differ between workers, it keeps its own.
        strategy: the strategy.
        remedy: what a user should do if a worker has other variables than the others.
        note: what the others are to know.

    Raises:
        BootstrapError: this worker has other variables than the one that is farthest.
    """
    text = json.dumps([mine.place, _digest(variables), note])
    places, models, notes = zip(*map(json.loads, strategy.exchange(text, "the last step")))
    if len(set(map(tuple, places))) == 1:
        return mine, list(notes)
    first = places.index(max(places))
    if models[strategy.rank] != models[first]:
        raise BootstrapError(
            f"{strategy.name_of(strategy.rank)} has other variables than {strategy.name_of(first)}, so it cannot take over "
            f"its state: {remedy}"
        )
    sent = pack(_as_checkpoint(mine, variables)) if strategy.rank == first else b""
    found = parse(of_every_worker(strategy, sent)[first], "of another worker")
    values = dict(mine.values)
    shared = {name: each for name, each in variables.items() if is_agreed(each)}
    parts = {
        name: values.get(name) or [part.read_value() for part in replicas_of(each)]
        for name, each in shared.items()
    }
    agreed = strategy.values_of_worker(first, {name: each[0] for name, each in parts.items()}, "variables")
    values.update({name: [agreed[name]] * len(each) for name, each in parts.items()})
    if mine.place == places[first]:
        return mine, list(notes)
    facts = dict(found.facts)
    sums = {name: found.arrays[f"sums/{name}"] for name in facts.pop("sums")}
    for name in facts.pop("others"):
        values.setdefault(name, [tf.constant(found.arrays[f"others/{name}"])])
    arrays = {name: each for name, each in found.arrays.items() if not name.startswith(("sums/", "others/"))}
    return Moment(Checkpoint(facts, arrays), values, sums), list(notes)


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
