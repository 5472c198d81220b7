"""Converts the variables of a model on all workers to arrays, and back.

A variable that is equal on all replicas of all workers is saved once. A variable that differs (statistics of
a layer, sums of metrics, random states) is saved for each replica: `[replicas of all workers, ...]`, in the
order of ranks.
"""

from __future__ import annotations

import hashlib
from typing import Dict, List, Optional

import numpy as np
import tensorflow as tf

from tf_strategies.callbacks.checkpoint_file import Checkpoint, CheckpointError
from tf_strategies.callbacks.exchange import of_every_worker
from tf_strategies.errors import DriftError
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import adds_up, is_agreed, label_of, replicas_of
from tf_strategies.texts import utf8

__all__ = ["add", "assign", "check", "collect", "for_replicas"]

_DIGEST = 16
_EQUAL = ("model/", "optimizer/")  # variables that training keeps equal on all replicas


def collect(
    strategy: Optional[GroupStrategy],
    variables: Dict[str, tf.Variable],
    values: Optional[Dict[str, List[np.ndarray]]] = None,
) -> Checkpoint:
    """Collects the values of the variables. All workers get the same result. A collective.

    Args:
        strategy: the strategy; None for a single process.
        variables: the variables by name, with the same names on all workers.
        values: values of the replicas of this worker that count in place of those that the variables have now.

    Raises:
        CheckpointError: raised on all workers if their variables have different names or numbers.
        DriftError: raised on all workers if a weight or a variable of an optimizer differs between replicas.
    """
    if values is None:
        values = {name: [part.numpy() for part in replicas_of(each)] for name, each in variables.items()}
    digests = of_every_worker(
        strategy, b"".join(_digest(name, part) for name in values for part in values[name])
    )
    if len({len(digest) for digest in digests}) > 1:
        counts = [
            f"{len(digest) // _DIGEST} on {strategy.name_of(rank)}" for rank, digest in enumerate(digests)
        ]
        raise CheckpointError(
            f"workers have different numbers of variables to save: {', '.join(counts)}; every worker must build the same model "
            "and the same number of replicas"
        )
    differing = _differing(values, digests)
    _refuse_drift(strategy, variables, values, digests, differing)
    own = b"".join(np.ascontiguousarray(part).tobytes() for name in differing for part in values[name])
    everyone = of_every_worker(strategy, own)
    arrays = {name: parts[0] for name, parts in values.items() if name not in differing}
    start = 0
    for name in differing:
        first = values[name][0]
        size = first.nbytes * len(values[name])
        rows = [np.frombuffer(each[start : start + size], first.dtype) for each in everyone]
        arrays[name] = np.concatenate(rows).reshape(-1, *first.shape)
        start += size
    facts = {
        name: {
            "label": label_of(variables[name]),
            "each": name in differing,
            "sum": adds_up(variables[name]),
            "replicas": len(parts) * len(everyone),
        }
        for name, parts in values.items()
    }
    return Checkpoint(facts, {name: arrays[name] for name in values})


def check(checkpoint: Checkpoint, variables: Dict[str, tf.Variable], name: str) -> None:
    """Checks that the arrays of a checkpoint fit the variables of the model.

    Raises:
        CheckpointError: the checkpoint belongs to another model or optimizer.
    """
    remedy = "restore it with the script that wrote it, or delete it to train from the start"
    for key in sorted({*checkpoint.facts, *variables}):
        if key not in checkpoint.facts:
            raise CheckpointError(
                f"checkpoint {name} is another model's: it has no {label_of(variables[key])!r} ({key}); {remedy}"
            )
        fact, array = checkpoint.facts[key], checkpoint.arrays[key]
        stored = f"{fact['label']!r} ({key}) with shape {list(array.shape[fact['each'] :])} of {array.dtype}"
        if key not in variables:
            raise CheckpointError(
                f"checkpoint {name} is another model's: it has {stored}, which this model has not; {remedy}"
            )
        variable = variables[key]
        shape, dtype = list(variable.shape), np.dtype(variable.dtype.as_numpy_dtype)
        if list(array.shape[fact["each"] :]) != shape or array.dtype != dtype:
            raise CheckpointError(
                f"checkpoint {name} is another model's: it has {stored}, and this model has {label_of(variable)!r} with shape "
                f"{shape} of {dtype}; {remedy}"
            )


def assign(
    strategy: Optional[GroupStrategy], checkpoint: Checkpoint, variables: Dict[str, tf.Variable]
) -> None:
    """Assigns the values of a checkpoint that passed `check` to the variables."""
    for key, variable in variables.items():
        for part, value in zip(replicas_of(variable), for_replicas(strategy, checkpoint, key, variable)):
            part.assign(value)


def add(strategy: Optional[GroupStrategy], checkpoint: Checkpoint, variables: Dict[str, tf.Variable]) -> None:
    """Adds the values of a checkpoint to variables that are sums."""
    for key, variable in variables.items():
        for part, value in zip(replicas_of(variable), for_replicas(strategy, checkpoint, key, variable)):
            part.assign_add(value)


def _digest(name: str, value: np.ndarray) -> bytes:
    state = hashlib.blake2b(utf8(f"{name} {value.dtype} {value.shape}"), digest_size=_DIGEST)
    state.update(np.ascontiguousarray(value).tobytes())
    return state.digest()


def _differing(values: Dict[str, List[np.ndarray]], digests: List[bytes]) -> List[str]:
    found, start = [], 0
    for name, parts in values.items():
        end = start + len(parts) * _DIGEST
        if any(digest[start:end] != digests[0][start : start + _DIGEST] * len(parts) for digest in digests):
            found.append(name)
        start = end
    return found


def _refuse_drift(
    strategy: Optional[GroupStrategy],
    variables: Dict[str, tf.Variable],
    values: Dict[str, List[np.ndarray]],
    digests: List[bytes],
    differing: List[str],
) -> None:
    """Raises a DriftError if weights differ that training keeps equal."""
    odd = [name for name in differing if name.startswith(_EQUAL) and is_agreed(variables[name])]
    if not odd:
        return
    position = list(values).index(odd[0])
    start = sum(len(parts) for parts in list(values.values())[:position]) * _DIGEST
    first = digests[0][start : start + _DIGEST]
    ranks = [rank for rank, digest in enumerate(digests) if digest[start : start + _DIGEST] != first]
    where = "differs between the replicas of a worker"
    if ranks and strategy is not None:
        names = ", ".join(strategy.name_of(rank) for rank in ranks)
        where = f"has different values on {names} than on {strategy.name_of(0)}"
    raise DriftError(
        f"variable {label_of(variables[odd[0]])!r} {where}, so it cannot be saved as one value; {len(odd)} "
        f"of {len(values)} "
        "variables differ. load_weights, set_weights and assign change only the worker that calls them: "
        "call them with the same values on all workers"
    )


def for_replicas(
    strategy: Optional[GroupStrategy], checkpoint: Checkpoint, key: str, variable: tf.Variable
) -> List[np.ndarray]:
    """Returns the values of a checkpoint for this worker's replicas of a variable.

    If the number of replicas has changed, these are the sum or the mean.
    """
    fact, array = checkpoint.facts[key], checkpoint.arrays[key]
    local = len(replicas_of(variable))
    rank, size = (0, 1) if strategy is None else (strategy.rank, strategy.size)
    if fact["replicas"] == size * local:
        return list(array[rank * local : (rank + 1) * local]) if fact["each"] else [array] * local
    if fact["sum"]:
        total = array.sum(axis=0, dtype=array.dtype) if fact["each"] else array * fact["replicas"]
        return [total if rank == replica == 0 else np.zeros_like(total) for replica in range(local)]
    if not fact["each"]:
        return [array] * local
    floating = tf.as_dtype(array.dtype).is_floating
    return [array.mean(axis=0, dtype=np.float64).astype(array.dtype) if floating else array[0]] * local
