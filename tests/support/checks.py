"""Checks that several workers make together, in one start of their processes: the functions check_... of a module.

A worker's script ends with `run_checks(globals(), strategy)`; the test is `require_checks(tmp_path, "its.module")`. A check that
fails ends its worker, and by that the others, so that a log ends with what went wrong.
"""

from __future__ import annotations

import importlib.util
import re
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from tests.support.leftovers import nothing_left
from tests.support.processes import ProcessGroup, ReservedPorts

__all__ = ["names_of_checks", "require_checks", "run_checks"]


def run_checks(
    namespace: Mapping[str, Any],
    *arguments: Any,
    only: Sequence[str] = (),
    around: Callable[[Callable[[Any], None]], None] | None = None,
) -> None:
    """In a worker: calls the checks in their order, and prints "passed <name> <seconds>" after each.

    Args:
        namespace: the worker's globals.
        arguments: what each check is called with.
        only: the names of those to run; all when empty.
        around: calls a check in place of this function.
    """
    for name, check in list(namespace.items()):
        if name.startswith("check_") and (not only or name in only):
            start = time.monotonic()
            around(check) if around else check(*arguments)
            print(f"passed {name} {time.monotonic() - start:.1f} s", flush=True)


def names_of_checks(module: str) -> list[str]:
    """The checks of a worker's module, which is read and not imported."""
    spec = importlib.util.find_spec(module)
    names = re.findall(r"^def (check_\w+)", Path(spec.origin).read_text(), re.M)
    assert names, f"{module} has no checks"
    return names


def require_checks(
    folder: Path,
    module: str,
    *arguments: str,
    workers: int,
    expected: Sequence[str] | None = None,
    timeout: float = 280.0,
    fresh: bool = False,
    env: Callable[[int], Mapping[str, str]] = lambda index: {},
) -> list[str]:
    """In a test: starts the module as so many workers; all checks must pass on all of them, and nothing be left behind.

    Args:
        folder: for the logs.
        arguments: of the worker's command line.
        expected: the names, in order, where these are not all of the module.
        timeout: seconds until the last worker's end.
        fresh, env: as for `ProcessGroup.start_workers`.

    Returns:
        Their logs.
    """
    names = names_of_checks(module) if expected is None else list(expected)
    with ReservedPorts(workers) as ports, ProcessGroup(folder) as group, nothing_left(group, ports.ports):
        started = group.start_workers(ports.addresses, module, *arguments, fresh=fresh, env=env)
        assert set(group.wait_all(timeout).values()) == {0}
        logs = [worker.log() for worker in started]
        for log in logs:
            assert re.findall(r"^passed (\w+)", log, re.M) == names
    return logs
