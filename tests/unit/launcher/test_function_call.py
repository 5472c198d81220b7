"""tfs.launch's parts without processes: options, the function that is sent, the files, and who failed first."""

from __future__ import annotations

import builtins
import functools
import inspect
import linecache
import pickle
import stat
import sys
import threading
from types import ModuleType

import pytest

import tf_strategies as tfs
from tf_strategies.errors import LaunchError, OptionsError
from tf_strategies.launcher.call_folder import CallFolder, TaskError
from tf_strategies.launcher.cluster_plan import Counts, plan_cluster
from tf_strategies.launcher.function_call import pack, unpack
from tf_strategies.launcher.launch import _results
from tf_strategies.objects import decode, encode

pytestmark = pytest.mark.any_line
PLAN = plan_cluster(Counts(2, ps=1), ["127.0.0.1"], lambda host, position: 2000 + position)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers must be a whole number of at least 0; got -1"),
        ({"workers": 2.5}, "workers must be a whole number of at least 0; got 2.5"),
        ({"workers": True}, "workers must be .* got True"),
        ({"workers": 0}, "no process would train: workers=0 needs chief=True"),
        ({"workers": 1, "chief": 1}, "chief must be True or False; got 1"),
        ({"workers": 1, "evaluator": "yes"}, "evaluator must be True or False; got 'yes'"),
        ({"workers": 1, "ps": "2"}, "ps must be a whole number of at least 0; got '2'"),
        ({"workers": 1, "threads": 0}, "threads must be a whole number of at least 1; got 0"),
        ({"workers": 1, "gpus_per_worker": -1}, "gpus_per_worker must be .* got -1"),
        ({"workers": 1, "timeout": 0}, "timeout must be a finite number above 0; got 0"),
        ({"workers": 1, "environment": {"A": 1}}, r"environment must be a dict of strings; got \{'A': 1\}"),
        ({"workers": 1, "environment": "A=1"}, "environment must be a dict of strings; got 'A=1'"),
        ({"workers": 1, "args": "text"}, "args must be a list or tuple; got 'text'"),
        ({"workers": 1, "kwargs": [1]}, r"kwargs must be a dict with names as keys; got \[1\]"),
        ({"workers": 1, "kwargs": {1: 2}}, r"kwargs must be a dict with names as keys; got \{1: 2\}"),
    ],
    ids=str,
)
def test_an_option_that_is_not_allowed_is_shown(options, message):
    with pytest.raises(OptionsError, match=message):
        tfs.launch(print, **options)


def test_what_is_no_function_is_refused():
    with pytest.raises(OptionsError, match="fn must be a function; got 3"):
        tfs.launch(3, workers=1)


def test_too_few_gpus_are_refused_with_both_counts():
    with pytest.raises(OptionsError, match="gpus_per_worker=2 needs 6 GPUs on this machine, which has 1"):
        environment = {"CUDA_VISIBLE_DEVICES": "0"}
        tfs.launch(print, workers=2, chief=True, gpus_per_worker=2, environment=environment)


def carried(function, *args, **kwargs):
    """Returns what a call returns after it was packed and unpacked."""
    path = list(sys.path)
    try:
        return unpack(decode(encode(pack(function, args, kwargs))))()
    finally:
        sys.path[:] = path


def test_closures_and_arguments_are_carried():
    rows = [1, 2]

    def inner(factor):
        return [factor * row for row in rows]

    assert carried(lambda factor, plus: [each + plus for each in inner(factor)], 10, plus=1) == [11, 21]
    assert carried(functools.partial(inner, 3)) == [3, 6]


def defined_in_a_cell(source, name):
    """Returns the function that a notebook cell has defined: its source is in no file."""
    cell = "/tmp/ipykernel_0/cell.py"
    linecache.cache[cell] = (len(source), None, source.splitlines(keepends=True), cell)
    names = {"__name__": "__main__"}
    exec(compile(source, cell, "exec"), names)
    return cell, names[name]


def test_the_source_of_a_cell_is_carried():
    source = "def f(g):\n    def inner():\n        pass\n    return g(f), g(inner)\n"
    cell, function = defined_in_a_cell(source, "f")
    call = pack(function, [inspect.getsource], {})
    del linecache.cache[cell]
    try:
        assert unpack(call)() == (source, "    def inner():\n        pass\n")
    finally:
        linecache.cache.pop(cell, None)


class LazyModule(ModuleType):
    """A module as tensorflow.keras is one in TensorFlow 2.15: of a class that cannot be pickled."""

    def __reduce__(self):
        raise TypeError("cannot pickle 'LazyModule' object")


def test_a_module_of_another_class_is_imported_by_name():
    lazy = LazyModule("json")
    assert carried(lambda: lazy.dumps([1])) == "[1]"


def test_the_variable_that_cannot_be_sent_is_named():
    lock, number = threading.Lock(), 1
    text = "cannot send the variable 'lock' of the function, a lock, to other processes: .*; make it inside of the function"
    with pytest.raises(TypeError, match=text):
        tfs.launch(lambda: (number, lock), workers=1)
    with pytest.raises(TypeError, match=r"cannot send args\[1\], a lock, to"):
        tfs.launch(print, args=[1, lock], workers=1)
    with pytest.raises(TypeError, match=r"cannot send kwargs\['end'\], a lock, to"):
        tfs.launch(print, kwargs={"end": lock}, workers=1)


def test_without_cloudpickle_the_error_says_how_to_install_it(monkeypatch):
    real = builtins.__import__

    def without(name, *more):
        if name == "cloudpickle":
            raise ModuleNotFoundError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="run: pip install cloudpickle"):
        tfs.launch(print, workers=1)


def test_nobody_else_can_read_the_files(tmp_path):
    folder = CallFolder(tmp_path)
    folder.write_call({"a": 1})
    folder.write_result("worker 0", [1])
    folder.write_error("worker 1", TaskError(1.0, "a", "b"))
    folder.write_report(None, {})
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 4
    assert folder.read_call() == {"a": 1}


def test_results_are_not_unpickled(tmp_path):
    (tmp_path / "worker 0.result").write_bytes(pickle.dumps([1]))
    with pytest.raises(ValueError, match="there is no object with the tag"):
        CallFolder(tmp_path).read_result("worker 0")


def ended(path, failed, **errors):
    """Returns the folder of processes that have ended, and raised errors at some time."""
    folder = CallFolder(path)
    for name, when in errors.items():
        task = name.replace("_", " ")
        folder.write_error(task, TaskError(when, f"ValueError: of {task}", f"Traceback of {task}"))
    folder.write_report(failed, {planned.name: f"ended with {planned.name}" for planned in PLAN})
    return folder


def test_the_first_that_raised_is_named_not_the_first_that_ended(tmp_path):
    with pytest.raises(LaunchError) as caught:
        _results(ended(tmp_path, "worker 0", worker_0=2.0, worker_1=1.0, ps_0=3.0), PLAN, None)
    assert (caught.value.task, caught.value.traceback) == ("worker 1", "Traceback of worker 1")
    assert str(caught.value) == "worker 1 failed: ValueError: of worker 1\n\nTraceback of worker 1"


def test_one_that_ended_without_an_exception_is_named_before_those_that_lost_it(tmp_path):
    with pytest.raises(LaunchError, match=r"^worker 1 failed: ended with worker 1$") as caught:
        _results(ended(tmp_path, "worker 1", worker_0=2.0), PLAN, None)
    assert (caught.value.task, caught.value.traceback) == ("worker 1", "")


def test_a_launcher_that_wrote_nothing_has_failed(tmp_path):
    with pytest.raises(LaunchError, match="the launcher of the processes has failed"):
        _results(CallFolder(tmp_path), PLAN, None)


def test_the_error_can_be_pickled():
    error = LaunchError("worker 1 failed", "worker 1", "Traceback")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.task, copy.traceback) == ("worker 1 failed", "worker 1", "Traceback")
