"""Starts tfs-run on small scripts, and reads what they wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.processes import ProcessGroup, wait_until

RUN = ("-m", "tf_strategies.launcher.run")
PRELUDE = """
import json, os, pathlib, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
folder = pathlib.Path(os.environ["DIR"])
def note(**values):
    (folder / f".{role}{index}").write_text(json.dumps({"pid": os.getpid(), **values}))
    (folder / f".{role}{index}").rename(folder / f"{role}{index}.json")
def wait_for_notes(*names):
    end = time.monotonic() + 20
    while not all((folder / f"{name}.json").exists() for name in names):
        assert time.monotonic() < end, f"no notes of {names}"
        time.sleep(0.02)
def hold():
    time.sleep(60)
"""


class Launcher:
    """Writes small scripts and starts tfs-run on them."""

    def __init__(self, group: ProcessGroup, folder: Path) -> None:
        self.group, self.folder = group, folder
        self._starts = 0

    def start(self, *arguments: str, code: str, env=None, script_arguments=()):
        script = self.folder / "script.py"
        script.write_text(PRELUDE + code)
        self._starts += 1
        return self.group.start_python(
            f"tfs-run{self._starts}",
            *RUN,
            *arguments,
            str(script),
            *script_arguments,
            env={"DIR": str(self.folder), **(env or {})},
        )

    def run(self, *arguments: str, code: str = "", timeout: float = 30, **more) -> tuple[int, str]:
        process = self.start(*arguments, code=code, **more)
        return process.wait(timeout), process.log()

    def wait_for(self, *names: str) -> None:
        """Waits until the processes have written with `note`."""
        for name in names:
            wait_until((self.folder / f"{name}.json").exists, 20, f"a note of {name}")

    def seen(self) -> dict[str, dict]:
        """Returns what the processes wrote with `note`, by role and index."""
        return {path.stem: json.loads(path.read_text()) for path in self.folder.glob("*.json")}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
