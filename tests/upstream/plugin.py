"""A pytest plugin that installs the bridge to Keras if asked to, and writes down how each test ended.

Environment:
    TFS_UPSTREAM_BRIDGE: "1" installs the bridge before the tests are read.
    TFS_UPSTREAM_OUTCOMES: the file for the outcomes, {name of the test: "passed", "failed" or "skipped"} as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any, Dict

import keras
import pytest

_outcomes: Dict[str, str] = {}


def _skip_if_backend(backend: str, reason: str) -> Any:
    return pytest.mark.skipif(keras.config.backend() == backend, reason=reason)


def pytest_configure(config: Any) -> None:
    del config
    # The package leaves out the conftest.py of Keras's repository, of which the tests import this name.
    sys.modules["conftest"] = types.ModuleType("conftest")
    sys.modules["conftest"].skip_if_backend = _skip_if_backend
    if os.environ["TFS_UPSTREAM_BRIDGE"] == "1":
        import tf_strategies
        from tf_strategies.keras import bridge

        assert keras.losses.Loss is not None and tf_strategies.__version__
        bridge.install()
        assert hasattr(keras.Model.fit, "__wrapped__"), "the bridge is not installed"


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _outcomes[report.nodeid] = "not read"


def pytest_sessionfinish() -> None:
    Path(os.environ["TFS_UPSTREAM_OUTCOMES"]).write_text(json.dumps(_outcomes))
