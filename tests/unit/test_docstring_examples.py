"""The examples in docstrings run as they stand, and every public class has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any, Dict, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tests.repo.test_public_api import public_classes
from tests.support.processes import ReservedPorts

pytestmark = pytest.mark.any_line
PORT = "9400"  # in an example; another program may have it here


def examples() -> Iterator[doctest.DocTest]:
    for found in pkgutil.walk_packages(tfs.__path__, "tf_strategies."):
        module = importlib.import_module(found.name)
        for example in doctest.DocTestFinder(exclude_empty=True).find(module):
            if example.examples:
                yield example


def names() -> Dict[str, Any]:
    """Returns what the examples take for granted: data, and a model that a strategy trains."""
    with tfs.CollectiveAllReduceStrategy().scope():
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(4)
    return {
        "dataset": dataset,
        "keras": keras,
        "model": model,
        "np": np,
        "test_dataset": dataset,
        "tf": tf,
        "tfs": tfs,
    }


@pytest.mark.parametrize("example", [pytest.param(each, id=each.name) for each in examples()])
def test_examples_run_and_print_what_they_say(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example.globs.update(names())
    lines: list = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    with ReservedPorts(1) as ports:
        for each in example.examples:
            each.source = each.source.replace(PORT, str(ports.ports[0]))
        failures, _ = runner.run(example, out=lines.append)
    assert not failures, "".join(lines)


@pytest.mark.parametrize(("name", "kind"), [pytest.param(*each, id=each[0]) for each in public_classes()])
def test_public_classes_have_an_example(name: str, kind: type) -> None:
    if not (inspect.isclass(kind) and issubclass(kind, Exception)):
        assert "Example:\n    >>> " in inspect.cleandoc(kind.__doc__), name
