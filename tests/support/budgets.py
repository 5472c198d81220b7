"""A pytest plugin that holds each test file to its seconds in tests/budgets.txt.

The run fails when a file takes more than three times its budget, or has no budget on this line of TensorFlow and Keras; one
and a half times is reported. The budget is scaled on a machine that is slower than the one it was measured on, never lowered.
The factor comes from a fixed piece of work, timed when the session starts, after each file, and between tests every few
seconds. A machine that was twice as slow at any of those times has other work to do, which may hold up a file while nothing
is timed: there, too long is only reported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.support.aside import take_aside

__all__ = ["BUDGETS_FILE", "LINES", "NONE", "read_budgets", "slowness", "this_line"]

LINES = ("newest", "2.15", "tf_keras")
NONE = "-"  # for a line on which no test of the file runs
REPORTED, ALLOWED = 1.5, 3.0
_BUSY = 2.0  # so many times slower at any moment, a machine cannot tell what a file takes
RECORDS = "TFS_TEST_SECONDS"  # names a folder for the measured seconds
BUDGETS_FILE = Path(__file__).resolve().parents[1] / "budgets.txt"
_WORK_SECONDS = 0.013  # of `_work` where the budgets were measured
_MOST_RUNS = 3
_SECONDS_BETWEEN = 5.0


def read_budgets(text: str) -> dict[str, dict[str, float]]:
    """Returns the seconds of each file on each line where it has some.

    Args:
        text: one file a line: its path, then its seconds on each of `LINES`; `#` starts a comment.

    Raises:
        ValueError: for a line of another form, with its number.
    """
    budgets: dict[str, dict[str, float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, *values = words
        try:
            seconds = {line: float(each) for line, each in zip(LINES, values) if each != NONE}
        except ValueError:
            seconds = {}
        if len(values) != len(LINES) or not seconds or name in budgets or min(seconds.values()) <= 0:
            raise ValueError(
                f"line {number} of the budgets is {line!r}; expected a file that was not named before, then its "
                f"seconds on {', '.join(LINES)} ({NONE} where it does not run)"
            )
        budgets[name] = seconds
    return budgets


def this_line() -> str:
    """Returns the line of this environment, without importing TensorFlow."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
        return "tf_keras"
    for name in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return "2.15" if version.startswith("2.15.") else "newest"
    return "newest"


def _work() -> int:
    total = 0
    for number in range(300_000):
        total += number ^ (total & 7)
    return total


def slowness() -> float:
    """Returns how many times slower than where the budgets were measured this machine is now; at least 1."""
    seconds = []
    for _ in range(_MOST_RUNS):
        start = time.perf_counter()
        _work()
        seconds.append(time.perf_counter() - start)
    return max(1.0, sorted(seconds)[_MOST_RUNS // 2] / _WORK_SECONDS)


class Budgets:
    """What the files of one session take, and what they may take."""

    def __init__(self, path: Path, line: str) -> None:
        self.path, self.line = path, line
        self.budgets = read_budgets(path.read_text())
        self.seconds: dict[str, float] = {}  # by test
        self.files: dict[str, float] = {}
        self.factors: dict[str, float] = {}
        self._now, self._timed = slowness(), time.monotonic()
        self._file = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._enter(nodeid.partition("::")[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("::")[0]
        taken = max(0.0, report.duration - take_aside())
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + taken
        self.files[name] = self.files.get(name, 0.0) + taken

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._enter("")
        if list(self.problems()) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        folder = os.environ.get(RECORDS)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            lines = [json.dumps([self.line, name, round(taken, 3)]) for name, taken in self.seconds.items()]
            (Path(folder) / f"{os.getpid()}.jsonl").write_text("".join(line + "\n" for line in lines))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        problems = list(self.problems())
        if problems:
            terminalreporter.section("test budgets", red=True)
            for problem in problems:
                terminalreporter.write_line(problem, red=True)
        for report in self.reports():
            terminalreporter.write_line(report, yellow=True)
        slow = self._slowest()
        terminalreporter.write_line(
            f"{sum(self.files.values()):.0f} s in {len(self.files)} test files on {self.line}"
            + (
                f"; this machine is up to {slow:.2f} times slower than that of the budgets"
                if slow > 1
                else ""
            )
            + (", too busy to fail a file by its seconds" if slow > _BUSY else "")
        )

    def problems(self) -> Iterator[str]:
        """Yields a message for each file that has no budget or took too long."""
        for name, taken in self.files.items():
            if self.line not in self.budgets.get(name, {}):
                yield (
                    f"{name} took {taken:.1f} s and has no budget on {self.line}: add it to {self.path}, "
                    "as low as it can be"
                )
        if self._slowest() <= _BUSY:
            yield from self._over(ALLOWED)

    def reports(self) -> Iterator[str]:
        """Yields a message for each file that took long and does not fail the run."""
        failing = set(self.problems())
        yield from (each for each in self._over(REPORTED) if each not in failing)

    def _slowest(self) -> float:
        return max([self._now, *self.factors.values()])

    def _over(self, times: float) -> Iterator[str]:
        for name, taken in self.files.items():
            budget = self.budgets.get(name, {}).get(self.line)
            factor = self.factors.get(name, 1.0)
            if budget is not None and taken > times * budget * factor:
                yield (
                    f"{name} took {taken:.1f} s on {self.line}; its budget is {budget:g} s, of which {ALLOWED:g} times "
                    f"as much is allowed, and {factor:.2f} times that on this machine: {ALLOWED * budget * factor:.1f} "
                    f"s. Make it faster, or raise its budget in {self.path} and say why"
                )

    def _enter(self, name: str) -> None:
        if name == self._file and time.monotonic() - self._timed < _SECONDS_BETWEEN:
            return
        before, self._now, self._timed = self._now, slowness(), time.monotonic()
        for each in {name, self._file} - {""}:
            self.factors[each] = max(self.factors.get(each, 1.0), before, self._now)
        self._file = name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budgets", type=Path, default=BUDGETS_FILE, help="the seconds that each test file may take"
    )
    parser.addoption("--no-budgets", action="store_true", help="let each test file take as long as it takes")


def pytest_configure(config: pytest.Config) -> None:
    if not (config.option.collectonly or config.option.no_budgets):
        config.pluginmanager.register(Budgets(config.option.budgets, this_line()), "budgets of test files")
