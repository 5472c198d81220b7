"""The variables that decide how training goes on, in an order that is the same when the script is run again."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy

__all__ = [
    "build_optimizer",
    "is_compiled",
    "label_of",
    "metric_variables",
    "replicas_of",
    "training_variables",
]


def training_variables(model: Any) -> Dict[str, Any]:
    """Weights, statistics, random states, and all that the optimizer and the compression of gradients keep, by position."""
    return {
        **_numbered("model", _model_variables(model)),
        **_numbered("optimizer", _optimizer_variables(model.optimizer)),
        **_numbered("compression", _compression_variables(model)),
    }


def metric_variables(model: Any) -> Dict[str, Any]:
    """What the metrics have added up; Keras 2 makes some of them in its first step only."""
    return _numbered("metrics", (variable for metric in model.metrics for variable in metric.variables))


def build_optimizer(model: Any) -> None:
    """Makes the variables of the optimizer, where they are missing.

    Raises:
        ValueError: the model has no variables yet.
    """
    if not model.built:
        raise ValueError(
            f"model {model.name!r} has no variables yet, so that none can be restored: give it a keras.layers.Input, or call "
            "model.build(...), before fit"
        )
    optimizer = model.optimizer
    if optimizer is None or getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        return
    with model.distribute_strategy.scope():
        build = getattr(optimizer, "build", None) or optimizer._create_all_weights
        build(model.trainable_variables)


def is_compiled(model: Any) -> bool:
    """Whether `compile` was called."""
    return bool(getattr(model, "compiled", getattr(model, "_is_compiled", False)))


def replicas_of(variable: Any) -> Tuple[tf.Variable, ...]:
    """The parts of a variable that this worker's replicas hold."""
    return tuple(variable.values) if isinstance(variable, tf.distribute.DistributedValues) else (variable,)


def label_of(variable: Any) -> str:
    """How messages name a variable."""
    return str(getattr(variable, "name", "variable")).partition(":")[0]


def _numbered(kind: str, variables: Iterable[Any]) -> Dict[str, Any]:
    unique: Dict[int, Any] = {}
    for variable in variables:
        stored = _stored(variable)
        unique.setdefault(id(stored), stored)
    return {f"{kind}/{number}": variable for number, variable in enumerate(unique.values())}


def _stored(variable: Any) -> Any:
    """The TensorFlow variable of a Keras 3 variable; a Keras 2 variable that casts itself, uncast."""
    if not isinstance(variable, tf.Variable):
        return variable.value
    return getattr(variable, "_variable", variable) if "AutoCast" in type(variable).__name__ else variable


def _model_variables(model: Any) -> Iterator[Any]:
    yield from model.weights
    yield from model.variables
    for layer in model._flatten_layers():
        generator = getattr(getattr(layer, "_random_generator", None), "_generator", None)
        if generator is not None:
            yield generator.state
    if isinstance(getattr(model, "_train_counter", None), tf.Variable):
        yield model._train_counter


def _compression_variables(model: Any) -> Sequence[Any]:
    strategy = model.distribute_strategy
    if not isinstance(strategy, GroupStrategy):
        return ()
    return strategy.state_of_gradients(model.trainable_variables)


def _optimizer_variables(optimizer: Any) -> Iterator[Any]:
    if optimizer is None:
        return
    listed = optimizer.variables
    yield from listed() if callable(listed) else listed
    tracked: List[Any] = [
        part for part in tf.train.TrackableView(optimizer).descendants() if isinstance(part, tf.Variable)
    ]
    yield from tracked
