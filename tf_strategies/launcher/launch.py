"""Runs a function in the processes of a new cluster on this machine, and brings its results back."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Sequence

from tf_strategies.arguments import count, positive
from tf_strategies.errors import LaunchError, OptionsError
from tf_strategies.launcher.call_folder import CallFolder
from tf_strategies.launcher.cluster_plan import LOCAL_HOST, Counts, PlannedProcess, plan_cluster
from tf_strategies.launcher.environment import visible_gpus
from tf_strategies.launcher.function_call import pack
from tf_strategies.launcher.local_agent import LocalAgent
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.launcher.share import Share
from tf_strategies.launcher.supervisor import Patience
from tf_strategies.secret import SECRET_FILE, new_secret
from tf_strategies.types import JsonObject, Kwargs, Sendable, Unchecked

__all__ = ["launch"]

_PATIENCE = Patience()
_AGENT_SECONDS = 10.0  # for the agent's own end, after the grace of its processes


def launch(
    fn: Callable[..., Sendable],
    *,
    workers: int,
    args: Sequence[object] = (),
    kwargs: Optional[Kwargs] = None,
    chief: bool = False,
    ps: int = 0,
    evaluator: bool = False,
    threads: Optional[int] = None,
    gpus_per_worker: Optional[int] = None,
    environment: Optional[Mapping[str, str]] = None,
    timeout: Optional[float] = None,
) -> List[Sendable]:
    """Returns what a function returns in each worker of a new cluster on this machine, by rank.

    Each process is a new Python interpreter with its own TF_CONFIG, as of tfs-run. Its output appears here as it is written, with
    the name of the process before each line. When one process fails, the others are ended.

    The function may be defined in a notebook or a script. It is sent with the variables that it uses, by the package cloudpickle.
    Results are encoded, not pickled: see `fn`.

    Args:
        fn: the function that all processes call. It constructs the strategy and the model itself. In the chief and in workers it
            returns None, a bool, int, float, str or bytes, a NumPy array or scalar of numbers, or a list, tuple or dict of these.
            The results of servers and of an evaluator are ignored.
        workers: the number of workers, beside the chief.
        args: positional arguments for the function.
        kwargs: keyword arguments for the function.
        chief: whether there is a chief. Its result is the first.
        ps: the number of parameter servers.
        evaluator: whether there is an evaluator.
        threads: the number of threads of each process. None divides the cores of the machine.
        gpus_per_worker: the number of GPUs for the chief and each worker. None divides the GPUs of the machine.
        environment: environment variables for the processes, beside those of this process.
        timeout: seconds until all processes must have ended. None waits until they have.

    Raises:
        OptionsError: an option has a value that is not allowed.
        TypeError: the function cannot be sent. The message names the variable.
        ImportError: the package cloudpickle is missing.
        LaunchError: a process has failed, a result has another type, or `timeout` has passed. All processes have ended.

    Example:
        >>> tfs.launch(lambda factor: [factor * 0.5], args=[3], workers=2)
        [[1.5], [1.5]]
    """
    if not callable(fn):
        raise OptionsError(f"fn must be a function; got {fn!r}")
    counts = _counts(workers, chief, ps, evaluator)
    seconds = None if timeout is None else positive("timeout", timeout)
    environ = {**os.environ, **_environment(environment)}
    gpus = None if gpus_per_worker is None else _gpus(gpus_per_worker, counts, environ)
    each = None if threads is None else count("threads", threads)
    call = pack(fn, _args(args), _kwargs(kwargs))
    with (
        tempfile.TemporaryDirectory(prefix="tf_strategies-") as path,
        ReservedPorts(len(counts.tasks())) as ports,
    ):
        plan = plan_cluster(counts, [LOCAL_HOST], lambda host, position: ports.ports[position])
        share = Share(
            tuple(plan),
            (sys.executable, "-m", "tf_strategies.launcher.function_task", path),
            tuple(planned.name for planned in plan),
            each,
            gpus,
            _PATIENCE.survivor_wait,
            _PATIENCE.grace,
            colour=False,
            keywords=True,
        )
        folder = CallFolder(Path(path))
        folder.write_call(call)
        in_time = _run(share, path, environ, seconds)
        return _results(folder, plan, None if in_time else seconds)


def _counts(workers: Unchecked, chief: Unchecked, ps: Unchecked, evaluator: Unchecked) -> Counts:
    for name, value in (("chief", chief), ("evaluator", evaluator)):
        if type(value) is not bool:
            raise OptionsError(f"{name} must be True or False; got {value!r}")
    counts = Counts(count("workers", workers, 0), chief, count("ps", ps, 0), evaluator)
    if not counts.workers and not chief:
        raise OptionsError("no process would train: workers=0 needs chief=True")
    return counts


def _args(given: Unchecked) -> Sequence[object]:
    if not isinstance(given, (list, tuple)):
        raise OptionsError(f"args must be a list or tuple; got {given!r}")
    return given


def _kwargs(given: Unchecked) -> Kwargs:
    values = {} if given is None else given
    if not isinstance(values, dict) or any(type(name) is not str for name in values):
        raise OptionsError(f"kwargs must be a dict with names as keys; got {given!r}")
    return values


def _environment(given: Unchecked) -> Mapping[str, str]:
    values = {} if given is None else given
    if not isinstance(values, Mapping) or any(
        type(each) is not str for pair in values.items() for each in pair
    ):
        raise OptionsError(f"environment must be a dict of strings; got {given!r}")
    return values


def _gpus(given: Unchecked, counts: Counts, environ: Mapping[str, str]) -> int:
    each, here = count("gpus_per_worker", given, 0), len(visible_gpus(environ))
    needed = each * (counts.workers + counts.chief)
    if needed > here:
        raise OptionsError(f"gpus_per_worker={each} needs {needed} GPUs on this machine, which has {here}")
    return each


def _run(share: Share, folder: str, environ: Mapping[str, str], seconds: float | None) -> bool:
    """Runs all processes until they have ended. Returns False if they did not end in time, and were ended."""
    request: JsonObject = {
        "cwd": str(Path.cwd()),
        "environ": {},
        "folder": folder,
        "secret": None if environ.get(SECRET_FILE) else new_secret(),
        "share": share.to_json(),
    }
    with LocalAgent(environ, _PATIENCE.grace + _AGENT_SECONDS) as agent:
        agent.start(request)
        in_time = agent.relay(seconds)
        if not in_time:
            agent.end(signal.SIGTERM)
        return in_time


def _results(folder: CallFolder, plan: Sequence[PlannedProcess], late: float | None) -> List[Sendable]:
    """Returns the results by rank.

    Args:
        folder: the files of the processes, which have ended.
        plan: the processes.
        late: the timeout, if it has passed.

    Raises:
        LaunchError: a process has failed or the timeout has passed.
    """
    report = folder.read_report()
    if report is None:
        raise LaunchError("the launcher of the processes has failed; its output says why")
    errors = folder.errors(report.ends)
    if report.failed is not None:
        # A process that lost another one may have ended before the other.
        first = min(errors, key=lambda task: errors[task].when) if report.failed in errors else report.failed
        error = errors.get(first)
        if error is None:
            raise LaunchError(f"{first} failed: {report.ends[first]}", first)
        text = "\n\n".join(filter(None, [f"{first} failed: {error.summary}", error.traceback]))
        raise LaunchError(text, first, error.traceback)
    ended = ", ".join(f"{task} {end}" for task, end in report.ends.items())
    if late is not None:
        raise LaunchError(f"the processes did not end within timeout={late:g} s: {ended}")
    return [_result(folder, planned.name, ended) for planned in plan if planned.trains]


def _result(folder: CallFolder, task: str, ended: str) -> Sendable:
    try:
        return folder.read_result(task)
    except FileNotFoundError:
        raise LaunchError(f"{task} ended before the function returned: {ended}", task) from None
