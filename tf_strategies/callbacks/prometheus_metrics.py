"""Gives the figures of steps to Prometheus. It needs the package prometheus-client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, Iterator, Optional, Tuple

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tf_strategies.callbacks.step_figures import StepFigures

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = ["StepCollector", "application_of"]

_LABELS = ("role", "task")

_COUNTERS: Tuple[Tuple[str, str, Callable[[StepFigures], float]], ...] = (
    ("tf_strategies_steps", "Steps of training.", lambda each: each.steps),
    ("tf_strategies_training_seconds", "Time of the steps.", lambda each: each.seconds),
    (
        "tf_strategies_communication_seconds",
        "Part of the time in which a collective waited for another worker, or data moved.",
        lambda each: each.communication_seconds,
    ),
    (
        "tf_strategies_exposed_seconds",
        "Part of the time of communication that was not hidden behind computation.",
        lambda each: each.exposed_seconds,
    ),
    ("tf_strategies_sent_bytes", "Bytes sent to other workers.", lambda each: each.bytes_sent),
    ("tf_strategies_received_bytes", "Bytes received from other workers.", lambda each: each.bytes_received),
)
_GAUGES: Tuple[Tuple[str, str, Callable[[StepFigures], Optional[float]]], ...] = (
    ("tf_strategies_step_seconds", "Mean time of the last steps.", lambda each: each.step_seconds),
    ("tf_strategies_steps_per_second", "Throughput of the last steps.", lambda each: each.steps_per_second),
    (
        "tf_strategies_hidden_ratio",
        "Share of the time of communication that was hidden behind computation in the last steps.",
        lambda each: each.hidden_share,
    ),
)


class StepCollector:
    """Collects the figures of the steps of a worker. Prometheus may ask for them on any thread.

    Args:
        role: "chief" or "worker".
        task: the index of the worker within the role.
    """

    def __init__(self, role: str, task: str) -> None:
        self._labels = (role, task)
        self._totals: Dict[str, float] = {name: 0.0 for name, _, _ in _COUNTERS}
        self._last: Optional[StepFigures] = None

    def add(self, figures: StepFigures) -> None:
        """Adds the figures of steps."""
        self._totals = {name: self._totals[name] + value(figures) for name, _, value in _COUNTERS}
        self._last = figures

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics: counters of all steps, and gauges of the last ones, if there are any."""
        totals, last = self._totals, self._last
        for name, text, _ in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            counter.add_metric(self._labels, totals[name])
            yield counter
        for name, text, value_of in _GAUGES:
            value = None if last is None else value_of(last)
            if value is not None:
                gauge = GaugeMetricFamily(name, text, labels=_LABELS)
                gauge.add_metric(self._labels, value)
                yield gauge


def application_of(collector: StepCollector) -> WSGIApplication:
    """Returns the application that answers with the metrics of a collector."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    application: WSGIApplication = prometheus_client.make_wsgi_app(registry)
    return application
