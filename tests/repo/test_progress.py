"""A session whose output is held back says how far it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import layers

pytestmark = pytest.mark.any_line
THREE = """
def test_first(): pass
def test_second(): assert False
def test_third(): pass
"""


def test_each_line_says_how_many_tests_have_ended_and_failed(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(THREE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "often.py").write_text(
        "from tests.support.progress import Progress\nProgress.__init__.__defaults__ = (0.0,)\n"
    )
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "often", "-p", "tests.support.progress"],
                cwd=tmp_path,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{layers.ROOT}:{tmp_path}",
                    "TFS_TEST_PROGRESS": str(writer),
                    "TFS_TEST_NAME": "three",
                },
                pass_fds=[writer],
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            os.close(writer)
        said = lines.read().splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert [re.sub(r"in \d+ s", "in so many s", line) for line in said] == [
        "  three: 1 of 3 tests in so many s",
        "  three: 2 of 3 tests in so many s, 1 failed",
        "  three: 3 of 3 tests in so many s, 1 failed",
    ]
