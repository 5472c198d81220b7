"""Each test file has a budget, and one that exceeds it fails the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import layers
from tests.support import slowest
from tests.support.budgets import BUDGETS_FILE, LINES, read_budgets, slowness, this_line

pytestmark = pytest.mark.any_line
_PLUGINS = ("-p", "machine", "-p", "tests.support.budgets", "-p", "no:cacheprovider")
BUSY = """
import time
def test_busy():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
"""


def run_pytest(
    folder: Path, budgets: str, *arguments: str, code: str = BUSY, machine: str = ""
) -> tuple[int, str]:
    """Runs pytest with the plugin on one file `test_busy.py`; `machine` is code that runs before it."""
    (folder / "test_busy.py").write_text(code)
    (folder / "budgets.txt").write_text(budgets)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "machine.py").write_text(f"from tests.support import budgets\n{machine}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *_PLUGINS, "--budgets", "budgets.txt", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{layers.ROOT}:{folder}",
            "TFS_TEST_SECONDS": str(folder / "seconds"),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def on_every_line(seconds: str) -> str:
    return f"test_busy.py {' '.join([seconds] * len(LINES))}  # a comment\n"


def test_a_file_within_its_budget_passes(tmp_path):
    status, text = run_pytest(tmp_path, on_every_line("5"))
    assert status == 0, text
    assert "test budgets" not in text


_OVER = r"test_busy.py took (0\.[34]) s on \S+; its budget is %s s, .* and 1\.25 times .*: %s s"


def test_a_file_of_three_times_its_budget_fails_with_file_budget_seconds_and_factor(tmp_path):
    status, text = run_pytest(tmp_path, on_every_line("0.05"), machine="budgets.slowness = lambda: 1.25")
    assert status == 1
    assert re.search(_OVER % (r"0\.05", r"0\.2"), text), text
    assert "1 passed" in text


def test_a_file_of_half_as_much_again_is_reported_and_passes(tmp_path):
    status, text = run_pytest(tmp_path, on_every_line("0.15"), machine="budgets.slowness = lambda: 1.25")
    assert status == 0
    assert re.search(_OVER % (r"0\.15", r"0\.6"), text), text


def test_a_budget_grows_on_a_slow_machine_and_never_shrinks(tmp_path):
    status, text = run_pytest(tmp_path, on_every_line("0.05"), machine="budgets.slowness = lambda: 9.0")
    assert status == 0, text
    assert "up to 9.00 times slower" in text
    assert slowness() >= 1


def test_a_machine_that_was_busy_for_a_moment_reports_and_passes(tmp_path):
    moments = "moments = iter([9.0, *[1.25] * 9])\nbudgets.slowness = lambda: next(moments)"
    other = "test_other.py 5 5 5\n"
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    status, text = run_pytest(
        tmp_path, on_every_line("0.05") + other, "test_other.py", "test_busy.py", machine=moments
    )
    assert status == 0, text
    assert "test_busy.py took" in text
    assert "up to 9.00 times slower than that of the budgets, too busy to fail a file" in text


def test_what_is_set_aside_does_not_count(tmp_path):
    code = BUSY + "    from tests.support.aside import set_aside\n    set_aside(0.29)\n"
    status, text = run_pytest(tmp_path, on_every_line("0.1"), code=code)
    assert status == 0, text


def test_a_file_without_a_budget_fails(tmp_path):
    status, text = run_pytest(tmp_path, "test_other.py 1 1 1\n")
    assert status == 1
    assert re.search(r"test_busy.py took \S+ s and has no budget on \S+: add it to budgets.txt", text), text
    elsewhere = " ".join("-" if line == this_line() else "5" for line in LINES)
    status, text = run_pytest(tmp_path, f"test_busy.py {elsewhere}\n")
    assert status == 1
    assert "has no budget on" in text


def test_no_test_is_a_failure(tmp_path):
    status, _ = run_pytest(tmp_path, on_every_line("5"), "-k", "nothing")
    assert status == pytest.ExitCode.NO_TESTS_COLLECTED


def test_what_was_measured_is_kept_shown_and_printed_as_budgets(tmp_path):
    run_pytest(tmp_path, on_every_line("5"))
    records = list(slowest.read_records(tmp_path / "seconds"))
    ((line, test, seconds),) = records
    assert (line, test) == (this_line(), "test_busy.py::test_busy")
    assert 0.3 <= seconds < 5
    assert f"{seconds:8.1f} s  {line:8}  {test}" in slowest.report(records)
    assert f"{seconds:8.1f} s  in all" in slowest.report(records)
    other = next(each for each in LINES if each != line)
    printed = slowest.as_budgets(
        [*records, (line, "test_long.py::test_a", 16.2)], {"test_long.py": {other: 9}}
    )
    assert read_budgets(printed) == {"test_busy.py": {line: 10}, "test_long.py": {line: 17, other: 9}}


@pytest.mark.parametrize(
    "text", ["a.py 1 2", "a.py 1 2 x", "a.py - - -", "a.py 1 2 0", "a.py 1 1 1\na.py 1 1 1"]
)
def test_a_line_of_another_form_is_named(text):
    number = text.count("\n") + 1
    with pytest.raises(ValueError, match=rf"line {number} of the budgets is "):
        read_budgets(text)


def test_every_test_file_has_a_budget():
    present = {str(path.relative_to(layers.ROOT)) for path in (layers.ROOT / "tests").rglob("test_*.py")}
    assert set(read_budgets(BUDGETS_FILE.read_text())) == present
