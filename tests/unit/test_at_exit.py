"""What runs when the interpreter ends: once, in the process that registered it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.any_line


def test_a_forked_child_leaves_it_to_its_parent():
    code = """
import functools, os, sys
from tf_strategies import at_exit

def goodbye(name):
    print(name, "in the", "parent" if os.getpid() == parent else "child", flush=True)

def undone():
    print("undone", flush=True)

parent = os.getpid()
at_exit.register(functools.partial(goodbye, "first"))
at_exit.register(undone)
at_exit.unregister(undone)
child = os.fork()
if child == 0:
    at_exit.register(functools.partial(goodbye, "its own"))
    sys.exit(3)
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["its own in the child", "status 3", "first in the parent"]


def test_files_are_whole_after_a_quick_end(tmp_path):
    code = """
import sys
from tf_strategies import at_exit

class Log:
    def __init__(self, path):
        self.file = open(path, "w")
        self.itself = self

Log(sys.argv[1]).file.write("one line")
kept = Log(sys.argv[1] + "2")
kept.file.write("another")
at_exit.register(at_exit.end_quickly)
"""
    path = tmp_path / "log"
    subprocess.run([sys.executable, "-c", code, path], cwd=REPOSITORY, check=True, timeout=60)
    assert path.read_text() == "one line"
    assert (tmp_path / "log2").read_text() == "another"
