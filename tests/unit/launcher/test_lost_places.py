"""Workers that fail when their places have gone: what is said, and how often they start again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_line

# A process of its own: a supervisor ends all children of its process.
CODE = """
import functools, os, pathlib, sys, threading
from tf_strategies.launcher import supervisor
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.supervisor import Job, Patience, Supervisor

class NoOutputs:
    def writers(self, name): return ()
    def describe(self, name): return ()
    def close(self): pass

class Growth:
    places = 2
    def has_place(self, index): return index < self.places
    def ended(self, index): pass
    def next_job(self): return None

def start(index, command):
    if index == 1:
        starts.append(growth.places)
        begins()
    return LaunchedProcess(f"worker {index}", ["sh", "-c", command], os.environ)

def hear(text):
    print(text, flush=True)
    hears(text)

go, growth, starts = pathlib.Path("go"), Growth(), []
supervisor.say = hear
supervisor._LOOK_SECONDS = supervisor._FIRST_RESTART_SECONDS = 0.05

def run(restarts, command):
    commands = ["while [ ! -e go ]; do sleep 0.05; done", command]
    job = lambda index: functools.partial(start, index, commands[index])
    jobs = [Job(f"worker {index}", job(index), "worker", "", job(index)) for index in (0, 1)]
    running = Supervisor(jobs, Patience(), NoOutputs(), min_workers=1, growth=growth)
    running.restarts_left = restarts
    print("status", running.run(), "starts", len(starts), "left", running.restarts_left)
"""


def run(folder: Path, scenario: str) -> str:
    argv = [sys.executable, "-c", CODE + scenario]
    found = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_place_that_goes_before_a_restart_is_told(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
def begins(): pass
def hears(text):
    if "and it starts again in" in text:
        growth.places = 1
    elif "does not start again" in text:
        growth.places = 2
    elif "starts again, because" in text:
        go.touch()
late = threading.Timer(10, go.touch)
late.daemon = True
late.start()
run(3, "[ -e failed ] && exit 0; touch failed; exit 9")
""",
    )
    told = [
        "worker 1 ended with status 9",
        "it starts again in 0.05 s (restarts left: 2)",
        "worker 1 does not start again, because it has no place",
        "worker 1 starts again, because it has a place again (restarts left: 2)",
        "status 0 starts 2 left 2",
    ]
    places = [said.find(text) for text in told]
    assert -1 not in places, said
    assert places == sorted(places), said


@pytest.mark.parametrize("restarts", [0, 2])
def test_restarts_are_counted_when_the_place_comes_and_goes(restarts: int, tmp_path: Path) -> None:
    said = run(
        tmp_path,
        f"""
def begins():
    growth.places = 1
def hears(text):
    if "go on (--min-workers 1)" in text:
        growth.places = 2
        if len(starts) > {restarts}:
            threading.Timer(0.5, go.touch).start()
run({restarts}, "exit 9")
""",
    )
    assert f"status 0 starts {restarts + 1} left 0" in said
    assert said.count("it has no place") == restarts, said
