"""Subjects of commits say where and what, in one short line: `area: what`, or `area, other area: what`."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.any_line
BEFORE_THE_RULE = "2b8a07b19a1f"


def test_subjects_name_the_area_and_are_short() -> None:
    program = [
        "git",
        "-C",
        str(REPOSITORY),
        "log",
        "--no-merges",
        "--format=%h %s",
        f"{BEFORE_THE_RULE}..HEAD",
    ]
    listed = subprocess.run(program, capture_output=True, text=True, timeout=60)
    if listed.returncode:
        pytest.skip("this is no clone of the repository with its history")
    lines = [line.split(" ", 1) for line in listed.stdout.splitlines()]
    wrong = [
        line
        for line in lines
        if len(line[1]) > 72 or not re.match(r"[\w./-]+(,? [\w./-]+){0,2}: \S", line[1])
    ]
    assert wrong == []
