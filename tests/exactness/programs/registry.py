"""The list of programs, and what they share: Keras, data and small models."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
from typing import Any, Callable, Dict, Optional

import numpy as np

__all__ = [
    "BATCH",
    "CLASSES",
    "FEATURES",
    "KERAS3",
    "PROGRAMS",
    "STEPS",
    "Program",
    "Trial",
    "classifier",
    "keras",
    "program",
    "rows",
]

keras = importlib.import_module("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "keras")
KERAS3 = keras.__version__.startswith("3.")

BATCH, STEPS, FEATURES, CLASSES = 12, 50, 6, 3


@dataclasses.dataclass
class Trial:
    """A training to run.

    Attributes:
        model: the compiled model.
        fit: arguments of `fit`; data in batches of `BATCH`, in one order.
        run: what trains instead of `fit`; returns what it logs.
        evaluate: arguments of `evaluate` afterwards; None for none.
        logs: whether the logs of `fit` must equal those of one process.
    """

    model: Any
    fit: Optional[Dict[str, Any]] = None
    run: Optional[Callable[[], Dict[str, Any]]] = None
    evaluate: Optional[Dict[str, Any]] = None
    logs: bool = True


@dataclasses.dataclass(frozen=True)
class Program:
    """A kind of program.

    Attributes:
        make: makes the model, and returns the trial.
        tolerance: how far weights may be from those of one process, absolute.
        only: "keras3" or "keras2" for a program that the other Keras cannot run.
        reference: the name of the program that one process runs in its place, "" for the same.
        needs: the name of a package without which it does not run, "" for none.
        local_replicas: False for a program that is refused with several replicas, or fails in TensorFlow where one has no row.
    """

    name: str
    make: Callable[[], Trial]
    tolerance: float
    only: str
    reference: str
    needs: str
    local_replicas: bool

    @property
    def runs(self) -> bool:
        return self.only in ("", "keras3" if KERAS3 else "keras2") and (
            not self.needs or importlib.util.find_spec(self.needs) is not None
        )


PROGRAMS: Dict[str, Program] = {}


def program(
    *,
    tolerance: float = 1e-5,
    only: str = "",
    reference: str = "",
    needs: str = "",
    local_replicas: bool = True,
) -> Callable:
    """Adds the decorated function to the list, by its name."""

    def add(make: Callable[[], Trial]) -> Callable[[], Trial]:
        name = make.__name__
        if name in PROGRAMS:
            raise ValueError(f"two programs are named {name!r}")
        PROGRAMS[name] = Program(name, make, tolerance, only, reference, needs, local_replicas)
        return make

    return add


def rows(count: int = BATCH * STEPS, seed: int = 0) -> tuple:
    """Returns x [count, FEATURES] float32 and the classes y [count] int64."""
    x = np.random.default_rng(seed).standard_normal((count, FEATURES)).astype("float32")
    return x, (np.abs(x).argmax(axis=1) % CLASSES).astype("int64")


def classifier(*hidden: Any, **compiled: Any) -> Any:
    """Returns a compiled model of FEATURES inputs and CLASSES logits; `hidden` layers in place of a Dense(8)."""
    inputs = keras.layers.Input((FEATURES,))
    outputs = inputs
    for layer in hidden or (keras.layers.Dense(8, activation="tanh"),):
        outputs = layer(outputs)
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(outputs))
    compiled.setdefault("optimizer", keras.optimizers.SGD(0.1, momentum=0.9))
    compiled.setdefault("loss", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    compiled.setdefault("metrics", ["accuracy"])
    model.compile(**compiled)
    return model
