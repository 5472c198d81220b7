"""Refuses to train models that were made outside of the strategy's scope, while several workers train together.

Each worker would train such a model separately, and the workers would overwrite each other's checkpoints.
Optimizers and metrics from outside of the scope have variables that the workers do not share.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.keras.model_state import optimizers_of
from tf_strategies.keras.types import Metric, Model, Variable
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["closed", "opened", "refuse_outside"]

_open: weakref.WeakSet[WorkerStrategy] = weakref.WeakSet()
_default: List[tf.distribute.Strategy] = []


def opened(strategy: WorkerStrategy) -> None:
    """Records that the strategy is open, if it has more than one worker, or may have."""
    _default_strategy()
    if strategy.may_have_others:
        _open.add(strategy)


def closed(strategy: WorkerStrategy) -> None:
    """Records that the strategy was closed."""
    _open.discard(strategy)


def refuse_outside(keras: ModuleType, model: Model) -> None:
    """Raises an OptionsError if the model, or a part of it, was made outside of the scope that it is trained in.

    Models of other strategies, such as OneDeviceStrategy, are accepted.

    Args:
        keras: the Keras of the model.
        model: the model that is about to be trained.
    """
    if _open and _is_in_no_scope(model):
        _refuse_model(model, next(iter(_open)))
    strategy = getattr(model, "distribute_strategy", None)
    if isinstance(strategy, WorkerStrategy) and (
        strategy.may_have_others or strategy.num_replicas_in_sync > 1
    ):
        _refuse_variables(model, strategy)
        _refuse_missing_call(keras, model)


def _is_in_no_scope(model: Model) -> bool:
    if not hasattr(model, "_distribute_strategy"):  # Keras 2
        return model.distribute_strategy is _default_strategy()
    if model._distribute_strategy is not None:
        return False
    return not tf.distribute.has_strategy() or isinstance(tf.distribute.get_strategy(), WorkerStrategy)


def _default_strategy() -> Optional[tf.distribute.Strategy]:
    """Returns TensorFlow's default strategy, or None if it does not exist yet."""
    if not _default and not tf.distribute.has_strategy():
        _default.append(tf.distribute.get_strategy())
    return _default[0] if _default else None


def _refuse_model(model: Model, strategy: WorkerStrategy) -> None:
    raise OptionsError(
        f"model {model.name!r} was made outside of strategy.scope(), but this process is {strategy.name_of(strategy.rank)} of "
        f"{strategy.size} in an open {type(strategy).__name__}: each worker would train a model of its own, and all would write "
        "the same files. Make and compile the model inside `with strategy.scope():` (with Keras Tuner, pass "
        "distribution_strategy=strategy). If this worker is to train a model of its own, make it inside "
        '`with tf.distribute.OneDeviceStrategy("CPU:0").scope():`, or call strategy.close() first'
    )


def _refuse_variables(model: Model, strategy: WorkerStrategy) -> None:
    compile_inside = (
        "; call model.compile inside `with strategy.scope():`, and make its optimizer and metrics there"
    )
    for part, variables, remedy in (
        (
            f"model {model.name!r}",
            _trainable_variables(model),
            "; build the model and all of its layers inside `with strategy.scope():`",
        ),
        *((*each, compile_inside) for each in _compiled_parts(model)),
    ):
        for variable in variables:
            held = getattr(variable, "_value", variable)
            if isinstance(held, tf.Variable) and not strategy.extended.variable_created_in_scope(held):
                raise OptionsError(
                    f"variable {_path_of(variable)!r} of {part} was made outside of strategy.scope(): the "
                    f"{strategy.num_replicas_in_sync} replicas of {type(strategy).__name__} would not share it{remedy}"
                )


def _trainable_variables(model: Model) -> List[Variable]:
    """Returns the trainable variables that the model has so far.

    Keras 2 raises an error for a Sequential that is not built.
    """
    return list(model.trainable_variables) if model.built else []


def _compiled_parts(model: Model) -> Iterator[Tuple[str, Sequence[Variable]]]:
    for optimizer in optimizers_of(model):
        variables = optimizer.variables
        name = getattr(optimizer, "name", type(optimizer).__name__)
        yield f"optimizer {name!r}", variables() if callable(variables) else variables
    for metric in [*model.metrics, *_metrics_to_come(model)]:
        yield f"metric {metric.name!r}", metric.variables


def _metrics_to_come(model: Model) -> List[Metric]:
    """Returns the metrics that were passed to Keras 2, which adds them to the model only in its first step."""
    container = getattr(model, "compiled_metrics", None)
    given = [getattr(container, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    return [each for each in tf.nest.flatten(given) if hasattr(each, "variables")]


def _refuse_missing_call(keras: ModuleType, model: Model) -> None:
    """Refuses a model without `call`: Keras 3 builds a model of a strategy by calling it, even if its `train_step` does not."""
    if not hasattr(model, "_distribute_strategy") or type(model).call is not keras.Model.call:
        return
    unbuilt = [layer.name for layer in model._flatten_layers() if not layer.built]
    if unbuilt:
        raise OptionsError(
            f"model {model.name!r} of class {type(model).__name__} has no `call` method, and {unbuilt[-1]!r} is not built yet: "
            "with a strategy, Keras calls a model once to make its variables. Define `call` so that it calls every layer of "
            "the model on a batch as `fit` gives it, also if train_step does not use it"
        )


def _path_of(variable: Variable) -> str:
    return str(getattr(variable, "path", None) or variable.name)
