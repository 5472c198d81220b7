"""Converts settings of layers and optimizers that affect training to text, to compare them between workers."""

from __future__ import annotations

import warnings
import zlib
from typing import Dict, Iterator, List, Sequence, Tuple, cast

import numpy as np

from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.types import Discretization, Layer, Lookup, Model, Optimizer

__all__ = ["layer_settings", "optimizer_settings"]

# Names contain numbers that depend on other objects of a process, and each process draws its own seeds. The
# variables of random generators start with the chief's seed.
_PROCESS_OWN = ("name", "seed", "shared_object_id", "code", "module", "registered_name", "build_config")
_LONGEST = 64
_SHOWN = 3


def optimizer_settings(optimizer: Optimizer) -> Tuple[str, Dict[str, str]]:
    """Returns the name of an optimizer in messages, and its settings, such as `learning_rate`, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns that functions in it cannot be saved
        config = optimizer.get_config()
    label = f"optimizer {getattr(optimizer, 'name', type(optimizer).__name__)!r}"
    return label, {"class": type(optimizer).__name__, **dict(_plain("", config))}


# A Sequential without an Input takes them from the first batch, of which each worker has a part.
_BATCH_SIZES = ("batch_shape[0]", "batch_input_shape[0]")


def layer_settings(model: Model) -> List[Tuple[str, Dict[str, str]]]:
    """Returns the name and the settings of each layer that does not contain other layers."""
    found = []
    for layer in model._flatten_layers():
        if next(iter(layer._flatten_layers(include_self=False)), None) is not None:
            continue
        try:
            config = layer.get_config()
        except (NotImplementedError, TypeError, ValueError):  # a layer that cannot be saved
            continue
        settings = {"class": type(layer).__name__, **dict(_plain("", {**config, **_learned(layer)}))}
        for name in _BATCH_SIZES:
            settings.pop(name, None)
        found.append((f"layer {layer.name!r}", settings))
    return found


def _learned(layer: Layer) -> Dict[str, Sequence[object]]:
    """Returns what `adapt` has taught a layer, where it is no variable and Keras leaves it out of the settings."""
    if isinstance(layer, (*classes_of("layers", "StringLookup"), *classes_of("layers", "IntegerLookup"))):
        return {"vocabulary": cast(Lookup, layer).get_vocabulary()}
    if isinstance(layer, classes_of("layers", "Discretization")):
        return {"bin_boundaries": list(cast(Discretization, layer).bin_boundaries or ())}
    return {}


def _plain(path: str, value: object) -> Iterator[Tuple[str, str]]:
    """Yields the numbers and short words of nested settings. Functions and long words are left out, long lists cut short."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _PROCESS_OWN:
                yield from _plain(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, (list, tuple)):
        parts = (part for number, inner in enumerate(value) for part in _plain(f"{path}[{number}]", inner))
        yield from parts if len(value) <= _LONGEST else _shortened(path, list(parts))
    elif isinstance(value, (bool, int, float, np.number)) or value is None:
        yield path, f"{value.item() if isinstance(value, np.generic) else value}"
    elif isinstance(value, str) and len(value) <= _LONGEST:
        yield path, value


def _shortened(path: str, parts: List[Tuple[str, str]]) -> Iterator[Tuple[str, str]]:
    """Yields one setting in place of the parts of a long list."""
    if parts:
        first, code = ", ".join(text for _, text in parts[:_SHOWN]), zlib.crc32(repr(parts).encode())
        yield path, f"[{first}, …] ({len(parts)} with the checksum {code:08x})"
