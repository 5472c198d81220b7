"""`PrometheusEndpoint`: serves the time and the communication of steps to Prometheus."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Optional

from tf_strategies import arguments
from tf_strategies.callbacks.metrics_server import MetricsServer
from tf_strategies.callbacks.step_figures import MeasuredStrategy, StepFigures, task_of
from tf_strategies.callbacks.step_watcher import StepWatcher
from tf_strategies.errors import OptionsError

if TYPE_CHECKING:
    from tf_strategies.callbacks.prometheus_metrics import StepCollector

__all__ = ["PrometheusEndpoint"]

_LAST_PORT = 65535


class PrometheusEndpoint(StepWatcher):
    """Serves the time and the communication of steps over HTTP while `fit` runs, for Prometheus.

    Each worker serves its own. Worker `local_rank` of a host listens on `port + local_rank`, so workers of one host do not
    collide. The labels are `role` ("chief" or "worker") and `task` (the index within the role). docs/metrics.md lists the
    metrics. There is no password and no encryption; by default only programs of the same host can connect.

    Args:
        port: the port of the first worker of a host.
        host: the address to listen on. "0.0.0.0" means all of this host's.
        interval: the shortest time between two updates, in seconds of training.

    Raises:
        ImportError: the package prometheus-client is not installed.
        OptionsError: an argument has a value that is not allowed; from `fit`, if the port is in use, or the strategy of the
            model is not a CollectiveAllReduceStrategy.

    Example:
        >>> endpoint = tfs.callbacks.PrometheusEndpoint(9400)
        >>> history = model.fit(dataset, epochs=3, verbose=0, callbacks=[endpoint])
    """

    def __init__(self, port: int, *, host: str = "127.0.0.1", interval: float = 10.0) -> None:
        super().__init__(interval)
        self._port = arguments.count("port", port)
        if self._port > _LAST_PORT:
            raise OptionsError(f"port must be at most {_LAST_PORT}; got {port!r}")
        if not isinstance(host, str) or not host:
            raise OptionsError(f'host must be an address such as "127.0.0.1"; got {host!r}')
        self._host = host
        _require_prometheus_client()
        self._collector: Optional[StepCollector] = None
        self._server: Optional[MetricsServer] = None
        self._served: Optional[MeasuredStrategy] = None

    def begin(self, strategy: MeasuredStrategy) -> None:
        """Starts the server. After an attempt of this strategy that failed, it serves on: the local rank may have changed."""
        if self._server is not None and self._served is strategy:
            return
        from tf_strategies.callbacks.prometheus_metrics import StepCollector, application_of

        self.end()  # an earlier `fit` may have ended with an error
        self._collector = self._collector or StepCollector(*task_of(strategy))
        port = self._port + strategy.local_rank
        try:
            self._server = MetricsServer(application_of(self._collector), self._host, port)
        except (OSError, OverflowError, ValueError) as error:
            raise OptionsError(
                f"PrometheusEndpoint of {strategy.name_of(strategy.rank)} cannot listen on {self._host}, port {port} "
                f"(port {self._port} + local rank {strategy.local_rank}): {error}; choose another port or host"
            ) from error
        self._served = strategy

    def report(self, step: int, figures: StepFigures) -> None:
        """Adds the figures to what is served."""
        if self._collector is not None:
            self._collector.add(figures)

    def end(self) -> None:
        """Stops the server."""
        if self._server is not None:
            self._server.close()
            self._server = self._served = None


def _require_prometheus_client() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"PrometheusEndpoint needs the package prometheus-client ({error}); install it: {sys.executable} -m "
            "pip install prometheus-client"
        ) from error
