"""Makes the logs of a batch show the metrics of all workers, or those of an epoch for workers that keep their own pace.

Keras 3 computes metrics on each replica and averages the results. This is wrong for metrics that are not
means, such as AUC and precision, and for replicas with unequal batches. Here their state is added up over all
workers first, in one message.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Callable, Dict, Iterable, List, Optional, Union

import numpy as np
import tensorflow as tf

from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.group_strategy import GroupStrategy, group_of
from tf_strategies.keras.step_results import StepResults
from tf_strategies.keras.types import Metric, Model
from tf_strategies.keras.worker_strategy import workers_of

__all__ = ["logs_of_epoch", "results", "results_of_step"]


def results(original: Callable[..., Logs], keras: ModuleType) -> Callable[..., Logs]:
    """Returns `Model.get_metrics_result`, which makes the logs of steps, changed to use the metrics of all workers."""
    del keras

    @functools.wraps(original)
    def get_metrics_result(self: Model) -> Logs:
        strategy = group_of(self)
        if strategy is None:
            return original(self)

        def together(distribution: Optional[tf.distribute.Strategy] = None) -> Logs:
            del distribution
            with strategy.reading_together(_state(self.metrics)):
                return tf.nest.map_structure(_held, original(self))

        def for_replicas(distribution: tf.distribute.Strategy) -> Logs:
            return tf.nest.map_structure(tf.convert_to_tensor, together(distribution))

        if not tf.distribute.has_strategy():
            with strategy.scope():
                return together()
        if tf.distribute.get_strategy() is not strategy:
            return original(self)
        if tf.distribute.in_cross_replica_context():
            return together()
        return strategy.agreed(tf.distribute.get_replica_context().merge_call(for_replicas))

    return get_metrics_result


def logs_of_epoch(original: Callable[..., Logs], keras: ModuleType) -> Callable[..., Logs]:
    """Returns the method that reads the metrics at the end of an epoch, changed to use the metrics of all workers."""
    del keras

    @functools.wraps(original)
    def logs_of_all(self: Model, logs: Logs) -> Logs:
        strategy = workers_of(self)
        if strategy is None:
            return original(self, logs)
        of_all_workers = strategy.epoch_trained(self)
        own = {} if group_of(self) is not None else _numbers(self.get_metrics_result())
        with strategy.counted_by_all(_state(self.metrics)):
            found = of_all_workers(original(self, logs))
            if found is not logs or not isinstance(logs, dict) or not own:
                return found
            return _with_results(found, own, _numbers(self.get_metrics_result()))

    return logs_of_all


def _numbers(results: Logs) -> Dict[str, float]:
    """Returns the results of metrics that are one number."""
    return {name: float(value) for name, value in results.items() if _is_number(value)}


def _with_results(logs: Logs, own: Dict[str, float], of_all: Dict[str, float]) -> Logs:
    """Returns logs of a step, in which results of the metrics of this worker are those of all workers.

    Keras takes the logs of the last step for those of the epoch if a `train_step` returns other numbers, too.
    """
    is_result = {name: name in of_all and _is_equal(value, own.get(name)) for name, value in logs.items()}
    return {name: of_all[name] if is_result[name] else value for name, value in logs.items()}


def _is_equal(value: object, number: Optional[float]) -> bool:
    return number is not None and _is_number(value) and float(value) == number  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.ndarray, tf.Tensor)) and np.ndim(value) == 0


def results_of_step(strategy: GroupStrategy, model: Model) -> Optional[StepResults]:
    """Returns what makes results of metrics that a step returns those of all replicas; None with Keras 2, which does it."""
    if not hasattr(model, "_distribute_strategy"):
        return None
    metrics = list({id(each): each for each in model.metrics}.values())
    return StepResults(metrics, lambda read: strategy.reading_together(_state(read)), strategy.agreed)


def _held(value: Union[float, tf.Tensor]) -> Union[float, tf.Tensor]:
    """Returns the current value of a tensor. Keras returns plain numbers if possible."""
    return value if isinstance(value, (bool, int, float)) else tf.identity(value)


def _state(metrics: Iterable[Metric]) -> List[tf.Variable]:
    """Returns the variables that metrics add up."""
    variables = (variable for metric in metrics for variable in metric.variables)
    return [variable if isinstance(variable, tf.Variable) else variable.value for variable in variables]
