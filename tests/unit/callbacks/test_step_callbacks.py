"""Callbacks that report steps: when they report, where they listen, and what they refuse."""

from __future__ import annotations

import socket
import struct
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tests.support.processes import ReservedPorts
from tf_strategies.callbacks import metrics_server
from tf_strategies.callbacks.prometheus_metrics import StepCollector, application_of
from tf_strategies.callbacks.step_figures import StepFigures
from tf_strategies.callbacks.step_watcher import StepWatcher
from tf_strategies.errors import OptionsError

pytestmark = pytest.mark.keras

keras = tf.keras
X = np.ones([24, 4], np.float32)


class Reports(StepWatcher):
    """Keeps what is reported."""

    def __init__(self, interval: float) -> None:
        super().__init__(interval)
        self.seen: List[tuple] = []

    def begin(self, strategy: Any) -> None:
        self.seen.append(("begin", strategy.size))

    def report(self, step: int, figures: StepFigures) -> None:
        assert figures.seconds > 0
        self.seen.append((step, figures.steps))

    def end(self) -> None:
        self.seen.append(("end",))


class Scrapes(keras.callbacks.Callback):
    """Reads an address at the end of each epoch."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.texts: List[str] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.texts.append(read(self.url))


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def compiled(make: Callable[[], Any] = tfs.CollectiveAllReduceStrategy, **arguments: Any) -> Any:
    with make().scope():
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(4)])
        model.compile("sgd", "mse", **arguments)
    return model


def test_the_first_step_does_not_count_and_the_rest_is_reported_at_the_end() -> None:
    model, reports = compiled(), Reports(interval=1000)
    for _ in range(2):
        model.fit(X, X, batch_size=4, epochs=2, verbose=0, validation_split=0.5, callbacks=[reports])
    assert reports.seen == [("begin", 1), (6, 5), ("end",), ("begin", 1), (12, 5), ("end",)]


def test_reports_come_when_the_interval_is_over() -> None:
    reports = Reports(interval=1e-9)
    compiled().fit(X, X, batch_size=8, epochs=2, verbose=0, callbacks=[reports])
    assert reports.seen == [("begin", 1), *[(step, 1) for step in range(2, 7)], ("end",)]


def test_steps_of_an_execution_are_counted() -> None:
    reports = Reports(interval=1e-9)
    compiled(steps_per_execution=2).fit(X, X, batch_size=4, epochs=2, verbose=0, callbacks=[reports])
    assert reports.seen == [("begin", 1), *[(step, 2) for step in (4, 6, 8, 10, 12)], ("end",)]


def test_no_report_follows_a_single_step() -> None:
    reports = Reports(interval=1e-9)
    compiled().fit(X, X, batch_size=24, verbose=0, callbacks=[reports])
    assert reports.seen == [("begin", 1), ("end",)]


def test_the_endpoint_serves_while_fit_runs_and_its_counters_go_on(tmp_path: Path) -> None:
    with ReservedPorts(1) as ports:
        scrapes = Scrapes(f"http://{ports.addresses[0]}/metrics")
        endpoint = tfs.callbacks.PrometheusEndpoint(ports.ports[0], interval=1e-9)
        model = compiled()
        for _ in range(2):
            model.fit(X, X, batch_size=8, epochs=2, verbose=0, callbacks=[endpoint, scrapes])
        with pytest.raises(urllib.error.URLError):
            read(scrapes.url)
    counts = [f'tf_strategies_steps_total{{role="worker",task="0"}} {count}.0' for count in (2, 5, 7, 10)]
    assert len(scrapes.texts) == 4
    assert all(count in text for count, text in zip(counts, scrapes.texts))
    assert "# TYPE tf_strategies_sent_bytes_total counter" in scrapes.texts[0]
    assert "# TYPE tf_strategies_step_seconds gauge" in scrapes.texts[0]
    assert "hidden_ratio" not in scrapes.texts[0]  # one worker communicates nothing


def test_fit_serves_again_after_an_error() -> None:
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise ArithmeticError

    with ReservedPorts(1) as ports:
        endpoint, model = tfs.callbacks.PrometheusEndpoint(ports.ports[0]), compiled()
        with pytest.raises(ArithmeticError):
            model.fit(X, X, verbose=0, callbacks=[endpoint, Fails()])
        model.fit(X, X, verbose=0, callbacks=[endpoint])


def test_a_further_attempt_serves_on_at_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    class FailsOnce(Scrapes):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, logs)
            if len(self.texts) == 1:
                raise ArithmeticError

    with ReservedPorts(1) as ports, socket.create_server(("127.0.0.1", 0)) as of_another_worker:
        endpoint = tfs.callbacks.PrometheusEndpoint(ports.ports[0], interval=1e-9)
        scrapes, model = FailsOnce(f"http://{ports.addresses[0]}/metrics"), compiled()
        with pytest.raises(ArithmeticError):
            model.fit(X, X, batch_size=8, verbose=0, callbacks=[endpoint, scrapes])
        taken = of_another_worker.getsockname()[1] - ports.ports[0]
        monkeypatch.setattr(type(model.distribute_strategy), "local_rank", taken)
        model.fit(X, X, batch_size=8, verbose=0, callbacks=[endpoint, scrapes])
        assert 'steps_total{role="worker",task="0"} 4.0' in scrapes.texts[1]
        with pytest.raises(urllib.error.URLError):
            read(scrapes.url)


def test_a_client_that_says_nothing_or_leaves_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.2)
    served = application_of(StepCollector("worker", "0"))
    with ReservedPorts(1) as ports:
        server = metrics_server.MetricsServer(served, "127.0.0.1", ports.ports[0])
        with socket.create_connection(("127.0.0.1", ports.ports[0]), timeout=10) as silent:
            assert "steps_total" in read(f"http://{ports.addresses[0]}/metrics")
            assert silent.recv(1) == b""  # the server has ended the connection
        with socket.create_connection(("127.0.0.1", ports.ports[0]), timeout=10) as leaves:
            leaves.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        server.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            OptionsError, match=rf"of worker 0 cannot listen on 127\.0\.0\.1, port {port} \(port {port} \+"
        ):
            compiled().fit(X, X, verbose=0, callbacks=[tfs.callbacks.PrometheusEndpoint(port)])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match="pip install prometheus-client"):
        tfs.callbacks.PrometheusEndpoint(9400)


@pytest.mark.parametrize("make", [tfs.AsyncParameterServerStrategy, tf.distribute.get_strategy])
@pytest.mark.parametrize("kind", ["StepTensorBoard", "PrometheusEndpoint"])
def test_other_strategies_are_refused(make: Callable[[], Any], kind: str, tmp_path: Path) -> None:
    callback = {
        "StepTensorBoard": lambda: tfs.callbacks.StepTensorBoard(tmp_path),
        "PrometheusEndpoint": lambda: tfs.callbacks.PrometheusEndpoint(9400),
    }[kind]()
    with pytest.raises(
        OptionsError, match=f"{kind} needs a model made in the scope of a CollectiveAllReduce"
    ):
        compiled(make).fit(X, X, verbose=0, callbacks=[callback])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"port": 0}, "port must be a whole number of at least 1; got 0"),
        ({"port": 65536}, "port must be at most 65535; got 65536"),
        ({"port": "9400"}, "port must be"),
        ({"port": 9400, "host": ""}, "host must be an address"),
        ({"port": 9400, "interval": 0}, "interval must be a finite number above 0; got 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        tfs.callbacks.PrometheusEndpoint(**arguments)
