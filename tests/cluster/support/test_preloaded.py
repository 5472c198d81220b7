"""A preloaded process is what `python -m` starts, except that TensorFlow is imported in it already."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, Process, ProcessGroup, wait_until

MODULE = "tests.cluster.support.preloaded_worker"
ENDINGS = {"returns": 0, "exits": 5, "raises": 1, "is killed": -signal.SIGKILL, "holds": -signal.SIGINT}

pytestmark = pytest.mark.any_line


def facts_of(process: Process) -> dict:
    return json.loads(process.wait_for_text("^facts (.*)$", timeout=60)[1])


def test_it_is_started_and_ends_as_python_does(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        pairs = []
        for ending in ENDINGS:
            env = {"TOLD": ending}
            preloaded = group.start_preloaded(f"preloaded {ending}", MODULE, ending, "a b", env=env)
            plain = group.start(f"plain {ending}", [sys.executable, "-m", MODULE, ending, "a b"], env=env)
            pairs.append((ending, preloaded, plain))
        for ending, preloaded, plain in pairs:
            mine, expected = facts_of(preloaded), facts_of(plain)
            if ending == "holds":
                preloaded.signal(signal.SIGINT)
                plain.signal(signal.SIGINT)
            assert preloaded.wait(30) == plain.wait(30) == ENDINGS[ending]
            assert mine["session"] == preloaded.pid
            assert mine["told"] == ending
            assert mine["folder"] == str(REPOSITORY)
            assert (mine["tensorflow"], expected["tensorflow"]) == (True, False)
            for name in ("name", "argv", "folder", "told", "stdin", "threads", "ours"):
                assert mine[name] == expected[name], name
            for text in ("at exit", "Traceback", "RuntimeError: of its own"):
                assert (text in preloaded.log()) == (text in plain.log()), (ending, text)


def test_it_dies_with_the_tests(tmp_path: Path) -> None:
    starter = f"""
import pathlib, time
from tests.support.processes import ProcessGroup
group = ProcessGroup(pathlib.Path({str(tmp_path)!r}))
print("started", group.start_preloaded("inner", {MODULE!r}, "holds").pid, flush=True)
time.sleep(60)
"""
    with ProcessGroup(tmp_path) as group:
        outer = group.start_python("outer", "-c", starter)
        pid = outer.wait_for_text(r"^started (\d+)$", timeout=60)[1]
        outer.signal(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10, "its end")


def test_those_of_one_group_differ_as_if_each_was_started_by_itself(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        started = [group.start_preloaded(f"worker{index}", MODULE, "returns") for index in range(6)]
        facts = [facts_of(process) for process in started]
        assert len({each["hash"] for each in facts}) == 3
        assert all(one["hash"] != other["hash"] for one, other in zip(facts, facts[1:]))
        assert len({each["session"] for each in facts}) == 6
        # Nothing of one program reaches the next.
        again = [group.start_preloaded(f"again{index}", MODULE, "returns") for index in range(6)]
        assert [facts_of(process)["open"] for process in again] == [each["open"] for each in facts]
