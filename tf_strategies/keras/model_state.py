"""Lists the variables that determine the further training, in an order that is the same in each run of the script."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.keras import ownership
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.types import Model, Optimizer, Variable

__all__ = [
    "accumulates_gradients",
    "adds_up",
    "agreed_variables",
    "averaged_variables",
    "build_optimizer",
    "follows_first_worker",
    "forget_loops",
    "is_agreed",
    "is_compiled",
    "label_of",
    "learning_rates",
    "metric_variables",
    "numbered_variables",
    "optimizers_of",
    "replicas_of",
    "training_variables",
]


def training_variables(model: Model) -> Dict[str, tf.Variable]:
    """Returns weights, statistics, random states, and the state of the optimizer, compressor and local steps, by position."""
    return {
        **_numbered("model", _model_variables(model)),
        **_numbered("optimizer", _optimizer_variables(model.optimizer)),
        **_numbered("compression", _compression_variables(model)),
        **_numbered("local_steps", _variables_of_local_steps(model)),
    }


def agreed_variables(model: Model) -> List[tf.Variable]:
    """Returns the variables of the model and its optimizers that must be equal on all workers, each once."""
    optimizers = [each for optimizer in optimizers_of(model) for each in _optimizer_variables(optimizer)]
    return [
        each for each in _numbered("", [*_model_variables(model), *optimizers]).values() if is_agreed(each)
    ]


def averaged_variables(model: Model) -> Tuple[List[tf.Variable], List[tf.Variable]]:
    """Returns the weights that are trained, and the other floats that steps may change, such as moving statistics."""
    weights = {id(each): each for each in map(_stored, model.trainable_variables) if _is_average(each)}
    others = [
        each
        for each in _numbered("", _model_variables(model)).values()
        if id(each) not in weights
        and _is_average(each)
        and not each.trainable  # of a frozen layer
        and not follows_first_worker(each)
    ]
    return list(weights.values()), others


def _is_average(variable: tf.Variable) -> bool:
    return bool(variable.dtype.is_floating) and is_agreed(variable)


def is_agreed(variable: tf.Variable) -> bool:
    """Returns True if a variable, of a model or an optimizer, must be equal on all workers.

    Sums that each replica counts by itself need not be equal, nor do variables that belong to one replica.
    """
    if variable.dtype in (tf.resource, tf.variant) or ownership.belongs_to_replica(variable):
        return False
    if getattr(variable, "synchronization", None) != tf.VariableSynchronization.ON_READ:
        return True
    return bool(variable.aggregation == tf.VariableAggregation.MEAN and variable.dtype.is_floating)


def adds_up(variable: tf.Variable) -> bool:
    """Returns True if each replica has a part of the variable's value, which is the sum of the parts."""
    on_read = getattr(variable, "synchronization", None) == tf.VariableSynchronization.ON_READ
    return bool(on_read and variable.aggregation == tf.VariableAggregation.SUM)


def follows_first_worker(variable: tf.Variable) -> bool:
    """Returns True if all workers take worker 0's value of the variable.

    This is the case if its aggregation says so. Variables of optimizers are excluded, because they are equal
    anyway.
    """
    first = getattr(variable, "aggregation", None) == tf.VariableAggregation.ONLY_FIRST_REPLICA
    return first and not variable.trainable and not ownership.belongs_to_optimizer(variable)


def optimizers_of(model: Model) -> List[Optimizer]:
    """Returns the optimizer that the model was compiled with, and those that it has as attributes."""
    found = {
        id(each): each for each in tf.nest.flatten(getattr(model, "optimizer", None)) if each is not None
    }
    for attribute in list(vars(model).values()):
        if hasattr(attribute, "apply_gradients") and hasattr(attribute, "get_config"):
            found.setdefault(id(attribute), attribute)
    return list(found.values())


def accumulates_gradients(model: Model) -> bool:
    """Returns True if the optimizer of a model has gradients that it has not applied yet."""
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if not steps:
        return False
    if hasattr(optimizer, "accumulated_batches"):  # of tf_strategies.optimizers with Keras 2
        return int(optimizer.accumulated_batches.numpy()) != 0
    taken = optimizer._iterations if hasattr(optimizer, "_iterations") else optimizer.iterations
    return int(taken.numpy()) % int(steps) != 0


def learning_rates(model: Model) -> List[tf.Variable]:
    """Returns the learning rates of the model's optimizer that can be set; a LearningRateSchedule is none."""
    optimizer = getattr(model, "optimizer", None)
    parts = (optimizer, *getattr(optimizer, "optimizers", ()))
    rates = [getattr(part, "learning_rate", None) for part in parts]
    return [_stored(rate) for rate in rates if hasattr(rate, "assign")]


def metric_variables(model: Model) -> Dict[str, tf.Variable]:
    """Returns the variables of the metrics. Keras 2 makes some of them only in its first step."""
    return _numbered("metrics", (variable for metric in model.metrics for variable in metric.variables))


def build_optimizer(model: Model) -> None:
    """Makes the missing variables of the optimizer.

    Raises:
        ValueError: the model does not have variables yet.
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


def forget_loops(model: Model, *, keeps_functions: bool = False) -> None:
    """Makes the model split its validation data again, and trace the functions of its loops again.

    Args:
        model: the model.
        keeps_functions: whether the functions of training and evaluation, if there are any, stay as they are.
    """
    model.predict_function = None
    if keeps_functions:
        for function in (model.train_function, model.test_function):
            if function is not None:
                function.generation = model.distribute_strategy.generation
    else:
        model.train_function = model.test_function = None
    if getattr(model, "_eval_data_handler", None) is not None:
        model._eval_data_handler = None
    if getattr(model, "_eval_epoch_iterator", None) is not None:
        model._eval_epoch_iterator = None


def is_compiled(model: Model) -> bool:
    """Returns True if `compile` was called."""
    return bool(getattr(model, "compiled", getattr(model, "_is_compiled", False)))


def replicas_of(variable: tf.Variable) -> Tuple[tf.Variable, ...]:
    """Returns the parts of a variable that this worker's replicas hold."""
    return tuple(variable.values) if isinstance(variable, tf.distribute.DistributedValues) else (variable,)


def label_of(variable: Variable) -> str:
    """Returns the name of a variable in messages."""
    return str(getattr(variable, "name", "variable")).partition(":")[0]


def numbered_variables(variables: Iterable[Variable]) -> Dict[str, tf.Variable]:
    """Returns variables, each once, by their numbers."""
    return _numbered("variable", variables)


def _numbered(kind: str, variables: Iterable[Variable]) -> Dict[str, tf.Variable]:
    unique: Dict[int, tf.Variable] = {}
    for variable in variables:
        stored = _stored(variable)
        unique.setdefault(id(stored), stored)
    return {f"{kind}/{number}": variable for number, variable in enumerate(unique.values())}


def _stored(variable: Variable) -> tf.Variable:
    """Returns the TensorFlow variable of a Keras 3 variable, or the uncast variable of a Keras 2 variable."""
    if not isinstance(variable, tf.Variable):
        return variable.value
    return ownership.uncast(variable)


def _model_variables(model: Model) -> Iterator[Variable]:
    if not model.built:  # Keras 2 raises an error for a Sequential that has no weights yet
        return
    yield from model.weights
    yield from model.variables
    yield from _random_states(model)
    if isinstance(getattr(model, "_train_counter", None), tf.Variable):
        yield model._train_counter


def _random_states(model: Model) -> Iterator[tf.Variable]:
    """Yields the random states of Keras 2, which differ between replicas.

    Those of Keras 3 are variables of the model.
    """
    for layer in model._flatten_layers():
        generator = getattr(getattr(layer, "_random_generator", None), "_generator", None)
        if generator is not None:
            ownership.give_to_replica(generator.state)
            yield generator.state


def _compression_variables(model: Model) -> Sequence[tf.Variable]:
    strategy = model.distribute_strategy
    if not isinstance(strategy, GroupStrategy):
        return ()
    return strategy.state_of_gradients(model.trainable_variables)


def _variables_of_local_steps(model: Model) -> Sequence[tf.Variable]:
    strategy = model.distribute_strategy
    return strategy.state_of_local_steps(model) if isinstance(strategy, GroupStrategy) else ()


def _optimizer_variables(optimizer: Optional[Optimizer]) -> Iterable[Variable]:
    return () if optimizer is None else ownership.variables_of_optimizer(optimizer)
