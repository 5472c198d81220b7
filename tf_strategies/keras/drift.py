"""Compares weights and settings between workers when `fit` begins and at the end of each epoch.

Weights that were loaded on one worker only, or hyperparameters that differ, do not stop training by
themselves: every worker would train a different model. Here each worker computes a checksum of every variable
and setting, and all workers exchange these in one message. A difference raises a DriftError on all of them.
"""

from __future__ import annotations

import json
import zlib
from typing import Callable, Dict, List, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from tf_strategies.errors import DriftError
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.hooks import Hooks
from tf_strategies.keras.model_state import (
    agreed_variables,
    follows_first_worker,
    label_of,
    optimizers_of,
    replicas_of,
)
from tf_strategies.keras.settings import layer_settings, optimizer_settings
from tf_strategies.keras.types import Model

__all__ = ["DriftCheck", "checksum"]

_DIGITS = 8
_PARTS_DIFFER = "replicas"  # has the length of a checksum in hexadecimal
_SHOWN = 3
_REMEDY_OF_VALUES = (
    "load_weights, set_weights and assign change only the worker that calls them: call them on every worker with the same "
    "values, or use tfs.callbacks.BackupAndRestore, which gives the chief's file to all. A variable that replicas write "
    'themselves needs aggregation="only_first_replica", "sum" or "mean", or the same value on all replicas'
)
_REMEDY_OF_SETTINGS = "give every worker the same value: callbacks, tuners and scripts must make the same choices on all workers"


class _Entry(NamedTuple):
    """A variable or a setting to compare.

    Attributes:
        label: the name in messages of this worker.
        code: the checksum, `_DIGITS` characters.
        describe: returns the values to show if they differ, by the name of the part.
        remedy: how to correct a difference.
    """

    label: str
    code: str
    describe: Callable[[], Dict[str, str]]
    remedy: str


class DriftCheck(Hooks):
    """Compares the workers' models within `fit`. A callback that runs after all callbacks of the user.

    Args:
        strategy: the strategy of the model.
    """

    async_safe = True

    def __init__(self, strategy: GroupStrategy) -> None:
        super().__init__()
        self._strategy = strategy
        self._has_begun = False

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        self._has_begun = False

    def on_epoch_begin(self, epoch: int, logs: Optional[Logs] = None) -> None:
        if not self._has_begun:
            self._has_begun = True
            settings = [*_of_layers(self.model), *_of_optimizers(self.model)]
            self._require_equal(settings, f"when fit begins with epoch {epoch + 1}")

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        self._require_equal(_of_optimizers(self.model), f"at the end of epoch {epoch + 1}")

    def _implements_train_batch_hooks(self) -> bool:
        return False

    def _require_equal(self, settings: List[_Entry], moment: str) -> None:
        """Raises a DriftError on all workers if their models differ. A collective."""
        variables = agreed_variables(self.model)
        entries = [*settings, *(_of_variable(variable) for variable in variables)]
        codes = self._strategy.exchange("".join(entry.code for entry in entries), "state of the model")
        if len(set(codes)) == 1 and _PARTS_DIFFER not in codes[0]:
            return
        for rank, code in enumerate(codes):
            if len(code) != len(codes[0]):
                raise DriftError(
                    f"{moment}, {self._strategy.name_of(0)} has {len(codes[0]) // _DIGITS} variables and settings in its model "
                    f"and optimizer, but {self._strategy.name_of(rank)} has {len(code) // _DIGITS}; every worker must build "
                    "the same model and optimizer"
                )
        differing = [number for number in range(len(entries)) if not _is_equal(codes, number)]
        settled = [number for number in differing if self._settle(number - len(settings), variables)]
        differing = [number for number in differing if number not in settled]
        if differing:
            self._refuse(entries[differing[0]], codes, differing, moment)

    def _settle(self, position: int, variables: List[tf.Variable]) -> bool:
        """Assigns the value of the first replica to all replicas, if the variable requires this.

        A collective.
        """
        if position < 0 or not follows_first_worker(variables[position]):
            return False
        parts = replicas_of(variables[position])
        value = self._strategy.of_first_worker(parts[0].read_value(), label_of(variables[position]))
        for part in parts:
            part.assign(value)
        return True

    def _refuse(self, entry: _Entry, codes: List[str], differing: List[int], moment: str) -> None:
        name_of, others = self._strategy.name_of, differing[1:]
        described = self._strategy.exchange(json.dumps(entry.describe()), "what differs between workers")
        shown = [json.loads(text) for text in described]
        part = min(
            (key for key in shown[0] if any(each.get(key) != shown[0][key] for each in shown)), default=""
        )
        values = [each.get(part, "not set") for each in shown]
        odd = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if odd is None:
            sides = f"differs between the replicas of a worker ({values[0]})"
            if len(set(codes)) > 1:
                sides = (
                    f"differs between workers, although the values that can be shown are equal ({values[0]})"
                )
        else:
            alike = [name_of(rank) for rank, value in enumerate(values) if value != values[0] and rank != odd]
            also = f" ({', '.join(alike[:_SHOWN])} differ, too)" if alike else ""
            sides = f"is {values[0]} on {name_of(0)}, but {values[odd]} on {name_of(odd)}{also}"
        more = f" {len(others)} more variables or settings differ." if others else ""
        label = f"{part} of {entry.label}" if part else entry.label
        raise DriftError(
            f"{label} {sides}, {moment}.{more} Workers would train different models; {entry.remedy}"
        )


def checksum(variable: tf.Variable) -> str:
    """Returns the CRC-32 of a variable's bytes in hexadecimal, or a mark if this worker's replicas differ."""
    codes = {f"{_crc(part):08x}" for part in replicas_of(variable)}
    return codes.pop() if len(codes) == 1 else _PARTS_DIFFER


def _crc(part: tf.Variable) -> int:
    with tf.device("CPU:0"):
        value = tf.identity(part.read_value())
    start = zlib.crc32(f"{value.dtype.name}{value.shape}".encode())
    try:
        return zlib.crc32(memoryview(value), start)  # no copy
    except (TypeError, ValueError):  # a dtype that buffers do not support, such as bfloat16 or string
        return zlib.crc32(repr(value.numpy().tolist()).encode(), start)


def _is_equal(codes: List[str], number: int) -> bool:
    place = slice(number * _DIGITS, (number + 1) * _DIGITS)
    return codes[0][place] != _PARTS_DIFFER and all(code[place] == codes[0][place] for code in codes)


def _of_variable(variable: tf.Variable) -> _Entry:
    def describe() -> Dict[str, str]:
        parts = [np.asarray(part.numpy()) for part in replicas_of(variable)]
        texts = [_shown(part) for part in parts]
        return {"": texts[0] if len(set(texts)) == 1 else " and ".join(texts)}

    label = f"variable {label_of(variable)!r}"
    return _Entry(label, checksum(variable), describe, _REMEDY_OF_VALUES)


def _of_layers(model: Model) -> List[_Entry]:
    return [_of_settings(label, settings) for label, settings in layer_settings(model)]


def _of_optimizers(model: Model) -> List[_Entry]:
    return [_of_settings(*optimizer_settings(optimizer)) for optimizer in optimizers_of(model)]


def _of_settings(label: str, settings: Dict[str, str]) -> _Entry:
    code = zlib.crc32(json.dumps(settings, sort_keys=True).encode())
    return _Entry(label, f"{code:08x}", lambda: settings, _REMEDY_OF_SETTINGS)


def _shown(value: np.ndarray) -> str:
    if value.ndim == 0:
        return str(value)
    first = ", ".join(str(each) for each in value.ravel()[:_SHOWN])
    mean = f" with mean {value.mean(dtype=np.float64)!s}" if value.dtype.kind in "fiub" else ""
    return f"[{first}{', …' if value.size > _SHOWN else ''}]{mean}"
