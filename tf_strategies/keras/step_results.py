"""Results of metrics that a step of Keras 3 returns are those of all replicas.

A `train_step` may return the result of a metric under any name, such as `{"loss": self.total_tracker.result()}`. Keras 2 reads
a metric over all replicas. Keras 3 gives what one replica has counted, and averages these numbers. The average is not the joint
batch's number where replicas have unequal rows, or where the metric is no mean. Here a step remembers which tensors came from
which metric. At its end it computes those that it returns again, from sums over all replicas, in one message.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Tuple

import tensorflow as tf

from tf_strategies.keras.types import Metric
from tf_strategies.types import Structure

__all__ = ["StepResults"]


class StepResults:
    """Knows the results that metrics give within one step; local replicas share it.

    Args:
        metrics: the metrics of the model, each once.
        reading: opens a context in which reads of these metrics over all replicas have been made in one message.
        agreed: tells that tensors are equal on all replicas; returns them.
    """

    def __init__(
        self,
        metrics: List[Metric],
        reading: Callable[[List[Metric]], ContextManager[None]],
        agreed: Callable[[Structure], Structure],
    ) -> None:
        self._metrics = [each for each in metrics if callable(getattr(each, "result", None))]
        self._reading = reading
        self._agreed = agreed
        self._noting = 0
        self._given: Dict[
            int, Tuple[tf.Tensor, Metric, int]
        ] = {}  # the tensor, its metric, its place in the result

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Opens a context in which the results of the metrics are remembered; in a replica function."""
        if not self._noting:
            for metric in self._metrics:
                vars(metric)["result"] = self._noting_result(metric, metric.result)
        self._noting += 1
        try:
            yield
        finally:
            self._noting -= 1
            if not self._noting:
                for metric in self._metrics:
                    del vars(metric)["result"]

    def of_all_replicas(self, logs: Structure) -> Structure:
        """Returns what a step returns, with results of metrics over all replicas; in a replica function, after `noted`."""
        flat = tf.nest.flatten(logs)
        given = [self._given.get(id(each)) for each in flat]
        metrics = list({id(each[1]): each[1] for each in given if each is not None}.values())
        if not metrics:
            return logs

        def read(distribution: tf.distribute.Strategy) -> List[List[tf.Tensor]]:
            del distribution
            with self._reading(metrics):
                return [[tf.identity(part) for part in tf.nest.flatten(each.result())] for each in metrics]

        results = self._agreed(tf.distribute.get_replica_context().merge_call(read))
        by_metric = {id(metric): result for metric, result in zip(metrics, results)}
        return tf.nest.pack_sequence_as(
            logs,
            [
                part if found is None else by_metric[id(found[1])][found[2]]
                for part, found in zip(flat, given)
            ],
        )

    def _noting_result(self, metric: Metric, original: Callable[..., Structure]) -> Callable[..., Structure]:
        @functools.wraps(original)
        def result(*args: Any, **kwargs: Any) -> Structure:
            found = original(*args, **kwargs)
            if tf.distribute.in_cross_replica_context():
                return found
            parts = [
                tf.identity(part) if isinstance(part, tf.Tensor) else part for part in tf.nest.flatten(found)
            ]
            for place, part in enumerate(parts):
                if isinstance(part, tf.Tensor):
                    self._given[id(part)] = part, metric, place
            return tf.nest.pack_sequence_as(found, parts)

        return result
