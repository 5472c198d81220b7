"""A pytest plugin that says from time to time how far a session is, past a `make` that holds its output back.

`make -Otarget` prints what a target wrote when the target ends. The environment variable TFS_TEST_PROGRESS is the number of
a file descriptor that leads around it, and TFS_TEST_NAME is the name of the session.
"""

from __future__ import annotations

import os
import time

import pytest

__all__ = ["Progress"]

DESCRIPTOR = "TFS_TEST_PROGRESS"
NAME = "TFS_TEST_NAME"
_EVERY_SECONDS = 60.0


class Progress:
    """Counts tests as they end, and writes a line at most once in so many seconds."""

    def __init__(self, descriptor: int, name: str, every: float = _EVERY_SECONDS) -> None:
        self._descriptor, self._name, self._every = descriptor, name, every
        self._start = self._said = time.monotonic()
        self._all = self._done = self._failed = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._all = len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        if report.when != "teardown":
            return
        self._done += 1
        now = time.monotonic()
        if now - self._said >= self._every:
            self._said = now
            line = f"{self._name}: {self._done} of {self._all} tests in {now - self._start:.0f} s"
            failed = f", {self._failed} failed" if self._failed else ""
            os.write(self._descriptor, f"  {line}{failed}\n".encode())


def pytest_configure(config: pytest.Config) -> None:
    if DESCRIPTOR in os.environ and not config.option.collectonly:
        # Processes that tests start do not inherit it.
        descriptor = os.dup(int(os.environ.pop(DESCRIPTOR)))
        config.pluginmanager.register(
            Progress(descriptor, os.environ.get(NAME, "tests")), "progress of tests"
        )
