"""Loads the operations, as a program of its own: TensorFlow takes long to load, and a broken library may end the process.

python -m tf_strategies.doctor.library prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

from tf_strategies.doctor.records import Library

__all__ = ["load_library"]

_MARK = "tfs-doctor library: "
_MOST_TEXT = 1000


async def load_library(task: str, seconds: float) -> Library:
    """Returns how the operations load on this host.

    Args:
        task: this task.
        seconds: after which the program is ended.
    """
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environ.pop("TF_CONFIG", None)
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tf_strategies.doctor.library",
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        written, _ = await asyncio.wait_for(program.communicate(), seconds)
    except (asyncio.TimeoutError, TimeoutError):
        return Library(task, "", f"they did not load within {seconds:g} s", is_late=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            program.kill()
    return _outcome(task, written.decode(errors="replace"), program.returncode or 0)


def _outcome(task: str, written: str, status: int) -> Library:
    """Returns what the program has found, from what it wrote and its exit status."""
    lines = written.splitlines()
    for line in reversed(lines):
        _, mark, text = line.partition(_MARK)  # others may have written the beginning of the line
        if mark:
            found = json.loads(text)
            return Library(task, str(found["built_for"]), str(found["error"]))
    if status < 0:
        return Library(task, "", f"the process that loads them was ended by {signal.Signals(-status).name}")
    said = f": {lines[-1]}" if lines else ""
    return Library(task, "", f"the process that loads them ended with status {status}{said}"[:_MOST_TEXT])


def main() -> int:
    """Loads the operations and prints how that went. Returns the exit status."""
    from tf_strategies.native import loader

    built_for = error = ""
    try:
        built_for = str(loader.build_info()["tensorflow"])
        loader.library()
    except Exception as caught:  # a broken installation raises anything
        error = f"{type(caught).__name__}: {caught}"[:_MOST_TEXT]
    print(_MARK + json.dumps({"built_for": built_for, "error": error}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
