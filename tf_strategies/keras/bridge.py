"""Installs the bridge in every Keras that is loaded, once in each."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from tf_strategies.keras import (
    callback_list,
    data_loop,
    embedding,
    first_batch,
    global_metrics,
    joint_gradients,
    joint_losses,
    loops,
    ownership,
    prediction_order,
    refusals,
    saving,
    seeds,
    server_variables,
    shuffling,
    summed_gradients,
)

__all__ = ["install"]

_NAMES = ("keras", "tf_keras")
_LOSSES = {3: "src.losses.loss", 2: "src.utils.losses_utils"}
_COMPILED_LOSSES = {
    3: ("src.trainers.compile_utils", "CompileLoss"),
    2: ("src.engine.compile_utils", "LossesContainer"),
}

_installed: set[str] = set()


def install() -> None:
    """Teaches the Kerases that are loaded by now. Cheap when there is nothing new; others follow when they are used.

    Raises:
        ImportError: a Keras keeps to itself something else than what the bridge knows of.
    """
    for name in _NAMES:
        keras = sys.modules.get(name)
        if keras is None or name in _installed or not _is_loaded(keras):
            continue
        try:
            _teach(name, keras)
        except (AttributeError, ImportError) as error:
            raise ImportError(
                f"tf_strategies does not know how to train {name} {keras.__version__} on several replicas: {error}; it knows "
                "Keras 2.15, Keras 3.15 and tf_keras 2.21: install one of them"
            ) from error
        _installed.add(name)


def _teach(name: str, keras: ModuleType) -> None:
    major = int(keras.__version__.partition(".")[0])
    losses = importlib.import_module(f"{name}.{_LOSSES[major]}")
    module, compiled = _COMPILED_LOSSES[major]
    ownership.install(name, keras)
    callback_list.install(keras)
    global_metrics.install(keras)
    refusals.install(keras)
    loops.install(keras)
    saving.install(keras)
    seeds.install(keras)
    joint_gradients.install()
    joint_losses.install(keras, getattr(importlib.import_module(f"{name}.{module}"), compiled))
    if major == 3:
        joint_losses.install_keras3(losses)
        summed_gradients.install(keras)
        server_variables.install(keras)
        embedding.install(keras, importlib.import_module(f"{name}.src.backend.common.stateless_scope"))
        _install_data_of_keras3(name, keras)
    else:
        joint_losses.install_keras2(losses)
        _install_data_of_keras2(name)


def _install_data_of_keras3(name: str, keras: ModuleType) -> None:
    trainer = importlib.import_module(f"{name}.src.backend.tensorflow.trainer")
    data_loop.install_keras3(trainer)
    first_batch.install(trainer)
    prediction_order.install(keras)
    shuffling.install(importlib.import_module(f"{name}.src.trainers.data_adapters.py_dataset_adapter"))


def _install_data_of_keras2(name: str) -> None:
    data_adapter = importlib.import_module(f"{name}.src.engine.data_adapter")
    data_loop.install_keras2(data_adapter)
    shuffling.install(data_adapter, importlib.import_module(f"{name}.src.utils.data_utils"))


def _is_loaded(module: ModuleType | None) -> bool:
    return all(hasattr(module, name) for name in ("Model", "callbacks", "__version__"))
