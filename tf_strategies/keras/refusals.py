"""Refuses models that cannot be trained by several workers when `fit` or `evaluate` begins."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Optional, Sequence, Union

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.inspection import name_of
from tf_strategies.keras.kept_gradients import kept_in
from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.scope_check import refuse_outside
from tf_strategies.keras.types import Gradients, Model, Optimizer, Variable
from tf_strategies.keras.worker_strategy import WorkerStrategy, workers_of
from tf_strategies.types import Result

__all__ = [
    "CLIPPINGS",
    "before_testing",
    "before_training",
    "refuse_accumulation",
    "refuse_clipping",
    "refuse_few_batches",
    "refuse_jit",
    "refuse_kept_gradients",
    "refuse_optimizer",
    "refuse_stateful_layers",
]

CLIPPINGS = ("clipnorm", "clipvalue", "global_clipnorm")


def before_training(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `fit`, or the first method in `train_on_batch`, changed to refuse models that cannot be trained.

    `Model.compile` is not changed: Keras does not compile loaded models if `compile` is not its own method.
    """
    outside = functools.partial(refuse_outside, keras)
    return _refusing(
        original,
        outside,
        refuse_jit,
        refuse_stateful_layers,
        refuse_clipping,
        refuse_shared_accumulation,
        refuse_with_compression,
    )


def before_testing(original: Callable[..., Result]) -> Callable[..., Result]:
    """Returns the method of models, changed to refuse models that cannot be evaluated."""
    return _refusing(original, refuse_jit, refuse_stateful_layers)


def _refusing(original: Callable[..., Result], *refusals: Callable[[Model], None]) -> Callable[..., Result]:
    @functools.wraps(original)
    def allowed(self: Model, *args: Any, **kwargs: Any) -> Result:
        for refuse in refusals:
            refuse(self)
        return original(self, *args, **kwargs)

    return allowed


def refuse_jit(model: Model) -> None:
    """Raises an OptionsError if the model spans several workers, or compresses, and was compiled with `jit_compile=True`."""
    own = getattr(model, "distribute_strategy", None)
    strategy = own if isinstance(own, WorkerStrategy) and own.compresses else workers_of(model)
    if strategy is not None and getattr(model, "jit_compile", False) is True:
        with_whom = f"{strategy.size} workers" if strategy.size > 1 else "compression"
        raise OptionsError(
            f"model.compile(jit_compile=True) cannot be used with {with_whom}: XLA would compile the whole step, and "
            'cannot compile communication between processes; use jit_compile="auto" (Keras 3) or False, and '
            "@tf.function(jit_compile=True) only on your own functions that compute"
        )


def refuse_stateful_layers(model: Model) -> None:
    """Raises an OptionsError if the model spans several workers and has recurrent layers with `stateful=True`."""
    strategy = workers_of(model)
    if strategy is None:
        return
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False) is True and hasattr(layer, "cell"):
            raise OptionsError(
                f"layer {layer.name!r} has stateful=True, which cannot be used with {strategy.size} "
                f"workers: the states belong to the rows of a batch, and each worker has different rows; "
                f"use stateful=False, or one worker"
            )


def refuse_clipping(model: Model) -> None:
    """Raises an OptionsError if the optimizer would clip gradients before they are added up."""
    strategy = workers_of(model)
    if strategy is None or not strategy.sums_when_applied or strategy.num_replicas_in_sync == 1:
        return
    optimizer: Any = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    for name in CLIPPINGS:
        if getattr(optimizer, name, None):
            raise OptionsError(
                f"{name}={getattr(optimizer, name)} of optimizer {optimizer.name!r} cannot be used with "
                f"{type(strategy).__name__}: gradients are averaged on the servers, and Keras would clip "
                f"those of each worker before; use CollectiveAllReduceStrategy, which clips the joint "
                f"gradient, or clip in a train_step of your own"
            )


def refuse_few_batches(batches: int, workers: int) -> None:
    """Raises a ValueError if batches are dealt out to workers, and there are too few for each to get one."""
    if 0 <= batches < workers:
        raise ValueError(
            f"an epoch of fit has {batches} batch{'' if batches == 1 else 'es'}, which cannot be dealt out to {workers} workers: "
            "some would train nothing. Use smaller batches, fewer workers, or a dataset that repeats, with dataset.repeat() "
            "and steps_per_epoch"
        )


def refuse_shared_accumulation(model: Model) -> None:
    """Raises an OptionsError if the model's optimizer would accumulate the gradients of all workers in the same variables."""
    refuse_accumulation(getattr(model, "distribute_strategy", None), getattr(model, "optimizer", None))


def refuse_accumulation(strategy: Optional[tf.distribute.Strategy], optimizer: Optional[Optimizer]) -> None:
    """Raises an OptionsError if an optimizer would accumulate gradients in variables of servers."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner is None or not isinstance(strategy, WorkerStrategy) or not strategy.sums_when_applied:
        return
    steps = getattr(inner, "gradient_accumulation_steps", None)
    if steps:
        raise OptionsError(
            f"gradient_accumulation_steps={steps} of {_named(inner)} cannot be used with {type(strategy).__name__}: its "
            "sums would lie on the servers, where all workers would add to them and reset them; use larger batches, or "
            "CollectiveAllReduceStrategy"
        )


def refuse_kept_gradients(grads: Gradients, variables: Sequence[Variable]) -> None:
    """Raises an OptionsError if a gradient is a variable of servers, in which a step of the user's own accumulates it.

    The step may also divide or clip the value of such a variable.
    """
    for grad, variable in zip(grads, variables):
        held = (grad, getattr(grad, "value", None))
        if any(getattr(each, "lives_on_servers", False) for each in held) or _is_computed_from_sums(grad):
            raise OptionsError(
                f"the gradient of {name_of(variable)!r} is kept in a variable on parameter servers, where all workers would add "
                "to it and reset it; apply the gradients of each batch, use larger batches, or CollectiveAllReduceStrategy"
            )


def _is_computed_from_sums(grad: object) -> bool:
    return isinstance(grad, tf.Tensor) and any(each.is_added_to for each in kept_in(grad))


def refuse_with_compression(model: Model) -> None:
    """Raises an OptionsError if the model's optimizer does not work with compressed gradients."""
    strategy = getattr(model, "distribute_strategy", None)
    if isinstance(strategy, WorkerStrategy):
        refuse_optimizer(strategy, getattr(model, "optimizer", None))


def refuse_optimizer(strategy: WorkerStrategy, optimizer: Optional[Optimizer]) -> None:
    """Raises an OptionsError if an optimizer does not work with the strategy's compressed gradients."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner is None or not strategy.compresses:
        return
    if isinstance(strategy, GroupStrategy):
        _refuse_before_sums(strategy, optimizer, inner)
    _refuse_second_momentum(strategy, inner)


def _refuse_before_sums(strategy: GroupStrategy, optimizer: Optional[Optimizer], inner: Optimizer) -> None:
    what = _named(inner)
    if inner is not optimizer and getattr(inner, "gradient_accumulation_steps", None):
        raise OptionsError(
            f"{what} accumulates gradients inside a LossScaleOptimizer, which cannot be used with "
            f"compression: the gradient of each part of a batch would be compressed separately; use larger "
            f"batches, or mixed_bfloat16, which needs no loss scale"
        )
    clipping = [name for name in CLIPPINGS if getattr(inner, name, None)]
    if clipping and strategy.keeps_gradients:
        raise OptionsError(
            f"{clipping[0]}={getattr(inner, clipping[0])} of {what} cannot be used with compression that "
            f"has error feedback: it would clip the values that are sent late; use clip_norm of "
            f"DeepGradientCompression, or no clipping"
        )


def _refuse_second_momentum(strategy: WorkerStrategy, inner: Optimizer) -> None:
    if not strategy.momentum_of_compression:
        return
    what = _named(inner)
    momentum = _number(getattr(inner, "momentum", 0.0))
    if not _is_sgd(inner) or momentum:
        raise OptionsError(
            f"{what} of type {type(inner).__name__} with momentum={momentum} cannot be used with compression that applies "
            f"momentum={strategy.momentum_of_compression} itself, before gradients are added up; use SGD without momentum, or "
            "give the compression momentum=0"
        )
    if getattr(inner, "weight_decay", None):
        raise OptionsError(
            f"weight_decay={inner.weight_decay} of {what} cannot be used with compression that applies "  # type: ignore[attr-defined]
            f"momentum itself: the decay would have no momentum; use "
            f"kernel_regularizer=keras.regularizers.L2(...), which is part of the gradient"
        )


def _is_sgd(optimizer: Optimizer) -> bool:
    """Returns True if the optimizer is Keras's SGD, and not a derived class."""
    return type(optimizer) in (*classes_of("optimizers", "SGD"), *classes_of("optimizers.legacy", "SGD"))


def _named(optimizer: Optimizer) -> str:
    return f"optimizer {getattr(optimizer, 'name', type(optimizer).__name__)!r}"


def _number(value: Union[float, Variable]) -> float:
    return float(value.numpy() if hasattr(value, "numpy") else value)
