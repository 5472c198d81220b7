"""The lists in which workers tell servers which of their variables they use."""

from __future__ import annotations

import json
from typing import Dict, Mapping, NamedTuple, Tuple, Union

import tensorflow as tf

__all__ = ["KEPT_STEP", "RESTORED_STEP", "STEP_DONE", "TEXT", "Kind", "describe", "list_name", "parse"]


class Kind(NamedTuple):
    """Describes a variable of a server.

    Attributes:
        dtype: the name of its dtype.
        shape: its shape.
        is_of_model: whether it belongs to a model or an optimizer. The others hold what workers tell each other.
    """

    dtype: str
    shape: Tuple[int, ...]
    is_of_model: bool

    @classmethod
    def of(cls, dtype: tf.DType, shape: tf.TensorShape, *, is_of_model: bool) -> Kind:
        return cls(dtype.name, tuple(shape.as_list()), is_of_model)


# JSON on the first server: [number of the snapshot, its step], and [text of its own, number, step].
KEPT_STEP = "kept step"
RESTORED_STEP = "restored step"
STEP_DONE = "step done by {}"
TEXT = Kind("string", (), is_of_model=False)


def list_name(rank: int) -> str:
    """Returns the name of the variable in which a worker lists the variables that it uses on a server."""
    return f"used by {rank}"


def describe(kinds: Mapping[str, Kind]) -> str:
    """Returns the value of a list as JSON, given the variables by name."""
    return json.dumps(kinds)


def parse(text: Union[str, bytes]) -> Dict[str, Kind]:
    """Returns the variables in a list by name, given what `describe` has returned."""
    listed = json.loads(text).items()
    return {name: Kind(dtype, tuple(shape), is_of_model) for name, (dtype, shape, is_of_model) in listed}
