"""Tests that a lost process starts again in one that has imported TensorFlow, and that its script cannot tell."""

from __future__ import annotations

import re

import pytest

from tests.cluster.launcher.launcher import PRELUDE

pytestmark = [pytest.mark.any_line, pytest.mark.waits]

# Waits less before it starts the spare process, and before it starts a lost one again.
TFS_RUN = """
import os, sys
from tf_strategies.launcher import run, spare, supervisor
os.environ.pop("TF2_BEHAVIOR", None)  # set where pytest has imported TensorFlow for other tests
spare._QUIET_SECONDS = 0.1
supervisor._STEADY_SECONDS = 0.0
sys.exit(run.main())
"""
SCRIPT = """
if index == 0:
    while not (folder / "worker1.json").exists():
        time.sleep(0.02)
    sys.exit()
starts = len(list(folder.glob("start*")))
(folder / f"start{starts}").touch()
spare = "spare_process" in pathlib.Path("/proc/self/cmdline").read_text()
def imported():
    return sorted({name.split(".")[0] for name in sys.modules} & {"numpy", "tensorflow", "keras", "tf_keras"})
print(f"start {starts} in a spare process: {spare}, {imported()}", flush=True)
print(f"{__name__} {pathlib.Path(__file__).name} {sys.argv[1:]} {sys.path[0] == str(folder)} {sys.stdin.read()!r}")
if starts == 0:
    time.sleep(1)
    sys.exit(9)
if starts == 1:
    begin = time.monotonic()
    import numpy.random
    print(f"after NumPy: {imported()}")
    import tensorflow as tf
    print(f"imported in {time.monotonic() - begin:.2f} s")
    print(f"after TensorFlow: {imported()}")
    from tensorflow.keras.layers import Dense
    import tf_strategies
    del os.environ["TF_CONFIG"]
    tf_strategies.CollectiveAllReduceStrategy()
    print("fit is ours:", "tf_strategies" in tf.keras.Model.fit.__code__.co_filename)
    print("a layer returns", Dense(2)(numpy.ones((1, 3))).shape, flush=True)
    time.sleep(1)
    sys.exit(9)
os.environ["MINE"] = str(os.getpid())
import numpy
note(set=os.environ["MINE"], of_imports=os.environ.get("TF2_BEHAVIOR"))
"""


def test_a_lost_process_starts_again_in_the_spare_one(launcher, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + SCRIPT)
    options = ("--workers", "2", "--min-workers", "1", "--restarts", "2", "--spare")
    process = launcher.group.start_python(
        "tfs-run", "-c", TFS_RUN, *options, str(script), "a", "b", env={"DIR": str(tmp_path)}
    )
    status, log = process.wait(60), process.log()
    assert status == 0, log
    assert re.findall(r"start (\d) in a spare process: (\w+), (.*)", log) == [
        ("0", "False", "[]"),
        ("1", "True", "[]"),
        ("2", "True", "[]"),
        ("3", "False", "[]"),
    ]
    assert log.count("__main__ script.py ['a', 'b'] True ''") == 4
    assert "after NumPy: ['numpy']" in log
    assert re.search(
        r"after TensorFlow: (\['keras', 'numpy', 'tensorflow'\]|\['numpy', 'tensorflow', 'tf_keras'\])", log
    ), log
    assert "fit is ours: True" in log
    assert "a layer returns (1, 2)" in log
    assert float(re.search(r"imported in (\S+) s", log).group(1)) < 1.0
    assert "script.py changes MINE before it imports numpy" in log
    assert "the spare process" not in log.replace("so the spare process", ""), log
    pid = launcher.seen()["worker1"]["pid"]
    assert launcher.seen()["worker1"] == {"pid": pid, "set": str(pid), "of_imports": None}
    assert "starts again now (restarts left: 0)" in log


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--workers", "2"), "--spare is for processes that start again while others train"),
        (("--workers", "2", "--min-workers", "2"), "--spare is for processes that start again"),
        (
            ("--workers", "1", "--max-workers", "2", "--restarts", "1", "--hosts-from", "echo localhost"),
            "--spare does not work with --hosts-from",
        ),
    ],
)
def test_a_spare_process_that_would_not_be_used_is_refused(launcher, options, error):
    status, log = launcher.run(*options, "--spare", "--dry-run", code="")
    assert (status, error in log) == (2, True), log


def test_one_that_cannot_import_tensorflow_is_named(launcher, tmp_path):
    code = TFS_RUN.replace("sys.exit", "spare._MODULE = 'tf_strategies.no_such_module'\nsys.exit")
    script = tmp_path / "script.py"
    script.write_text("import os, time\ntime.sleep(1.5)\n")
    options = ("--workers", "1", "--min-workers", "1", "--restarts", "2", "--spare")
    process = launcher.group.start_python("tfs-run", "-c", code, *options, str(script))
    status, log = process.wait(30), process.log()
    assert status == 0, log
    assert re.search(r"the spare process ended with status 1 after .*no_such_module", log, re.S), log
    assert log.count("the spare process") == 1
