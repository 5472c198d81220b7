"""Runs the function of a `tfs.launch` in one of its processes.

    python -m tf_strategies.launcher.function_task FOLDER

The folder holds the function, and takes its result or its exception. TF_CONFIG says which process this is.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

from tf_strategies.launcher.call_folder import CallFolder, TaskError
from tf_strategies.launcher.cluster_plan import TRAINING_ROLES
from tf_strategies.launcher.function_call import unpack
from tf_strategies.texts import described, printable
from tf_strategies.types import Sendable

_SUMMARY_LENGTH = 500


def main() -> None:
    """Calls the function. An exception is written to the folder, and raised again."""
    sys.excepthook = _print_error
    folder = CallFolder(Path(sys.argv.pop()))
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    name = f"{task['type']} {task['index']}"
    try:
        result = unpack(folder.read_call())()
        if task["type"] in TRAINING_ROLES:
            _bring_back(folder, name, result)
    except Exception as error:
        folder.write_error(name, _described(error))
        raise


def _bring_back(folder: CallFolder, name: str, result: Sendable) -> None:
    try:
        folder.write_result(name, result)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the result of the function cannot be brought back: {error}") from None


def _described(error: Exception) -> TaskError:
    trace = _of_the_user(error.__traceback__)
    text = "" if trace is None else "".join(traceback.format_exception(type(error), error, trace))
    return TaskError(time.monotonic(), described(error, _SUMMARY_LENGTH), printable(text))


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    traceback.print_exception(kind, error, _of_the_user(trace))


def _of_the_user(trace: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback that begins in the function of the user; None if it does not get there."""
    while trace is not None and trace.tb_frame.f_code.co_filename != unpack.__code__.co_filename:
        trace = trace.tb_next
    return None if trace is None else trace.tb_next


if __name__ == "__main__":
    main()
