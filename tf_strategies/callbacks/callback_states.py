"""Saves and restores the state that Keras's own callbacks keep between epochs."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

import numpy as np

from tf_strategies.keras.fit_types import Callback
from tf_strategies.keras.loaded import classes_of
from tf_strategies.types import Json, JsonObject

__all__ = ["Snapshots", "restore", "without_weights"]

# The attributes of each callback that `on_train_begin` resets, although training continues.
_REMEMBERED = {
    "EarlyStopping": ("wait", "best", "best_epoch", "stopped_epoch", "best_weights"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "ModelCheckpoint": (
        "best",
        "epochs_since_last_save",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
    ),
    "History": ("history", "epoch"),
}
_LARGE = ("best_weights", "history", "epoch")


class Snapshots:
    """Takes the states of the callbacks of one `fit`.

    Weights and the history are large, and Keras's own callbacks change them at the ends of epochs only. So they are
    taken once in an epoch, but for derived classes.

    Args:
        callbacks: those of the `fit`. The list may change.
    """

    def __init__(self, callbacks: List[Callback]) -> None:
        self._callbacks = callbacks
        self._taken: Dict[Tuple[str, int, str], Tuple[Json, Dict[str, np.ndarray]]] = {}

    def epoch_ended(self) -> None:
        """Tells that the callbacks have changed what is large."""
        self._taken.clear()

    def take(self) -> Tuple[List[JsonObject], Dict[str, np.ndarray]]:
        """Returns the states of the callbacks: plain data, and weights by name."""
        facts, arrays = [], {}
        for kind, number, callback in _known(self._callbacks):
            is_kerases = type(callback) in classes_of("callbacks", kind)
            remembered: JsonObject = {}
            for name in _REMEMBERED[kind]:
                key = kind, number, name
                taken = self._taken.get(key) or _take(kind, number, callback, name)
                if name in _LARGE and is_kerases:
                    self._taken[key] = taken
                remembered[name], weights = taken
                arrays.update(weights)
            facts.append({"kind": kind, "number": number, "remembered": remembered})
        return facts, arrays


def without_weights(facts: List[JsonObject]) -> List[JsonObject]:
    """Returns the states of the callbacks without weights, which are as large as the model."""
    return [
        {
            **fact,
            "remembered": {name: part for name, part in fact["remembered"].items() if name != "best_weights"},
        }
        for fact in facts
    ]


def restore(callbacks: List[Callback], facts: List[JsonObject], arrays: Dict[str, np.ndarray]) -> None:
    """Restores the states of the callbacks.

    New callbacks keep their state; states of removed callbacks are ignored.
    """
    found = {(kind, number): callback for kind, number, callback in _known(callbacks)}
    for fact in facts:
        kind, number = fact["kind"], fact["number"]
        callback = found.get((kind, number))
        for name, value in fact["remembered"].items() if callback is not None else ():
            if name == "best_weights" and value is not None:
                value = [arrays[f"{kind}/{number}/{index}"] for index in range(value)]
            elif isinstance(value, (dict, list)):
                value = _plain(value)  # The callback adds to it, and the facts may be restored again.
            if hasattr(callback, name):
                setattr(callback, name, value)


def _known(callbacks: List[Callback]) -> Iterator[Tuple[str, int, Callback]]:
    """Yields Keras's callbacks and those derived from them, each with its kind and its number within the kind."""
    counts: Dict[str, int] = {}
    for callback in callbacks:
        for kind in _REMEMBERED:
            if isinstance(callback, classes_of("callbacks", kind)):
                counts[kind] = counts.get(kind, 0) + 1
                yield kind, counts[kind] - 1, callback
                break


def _take(kind: str, number: int, callback: Callback, name: str) -> Tuple[Json, Dict[str, np.ndarray]]:
    """Returns a value of a callback: plain data, and its weights by name."""
    value = getattr(callback, name, None)
    if name != "best_weights" or value is None:
        return _plain(value), {}
    return len(value), {f"{kind}/{number}/{index}": np.asarray(part) for index, part in enumerate(value)}


def _plain(value: object) -> Json:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return np.asarray(value).item()
