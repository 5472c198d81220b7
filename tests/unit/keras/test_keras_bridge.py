"""The bridge into Keras: in place once there is a strategy, and clear about a Keras that it does not know."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import REPOSITORY, light_environment

pytestmark = pytest.mark.matrix
_PROGRAM = """
import keras
import tf_strategies as tfs
lists = keras.callbacks.CallbackList
made = lists.__init__
assert lists.__init__ is made
{break_keras}
tfs.CollectiveAllReduceStrategy(devices=["CPU:0"]).scope()
assert lists.__init__ is not made
print("taught")
"""


def run(break_keras: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(break_keras=break_keras)],
        env=light_environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_keras_is_taught_with_the_first_strategy() -> None:
    done = run("")
    assert done.stdout == "taught\n", done.stderr


def test_a_keras_that_is_not_known_is_named() -> None:
    done = run("del keras.callbacks.CallbackList")
    assert "ImportError: tf_strategies does not know how to train keras" in done.stderr, done.stderr
    assert "Install Keras 3." in done.stderr
