"""Says what the options of tfs-run mean, alone and together."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import Sequence

from tf_strategies.launcher.arguments import AUTO
from tf_strategies.launcher.certificates import temporary_certificates
from tf_strategies.launcher.cluster_plan import PlannedProcess
from tf_strategies.launcher.environment import visible_gpus
from tf_strategies.launcher.own_arbiter import arbiter_address, hold_arbiter
from tf_strategies.launcher.remote_hosts import named_variables
from tf_strategies.launcher.share import Share
from tf_strategies.options import ARBITER
from tf_strategies.secret import SECRET_FILE, temporary_secret_file
from tf_strategies.tls import TLS_FOLDER

__all__ = ["check_spare", "command_of", "environment_of", "port_base_of", "share_of", "workers_of"]


def check_spare(arguments: argparse.Namespace) -> None:
    """Raises ValueError if --spare would have no effect."""
    if arguments.spare and arguments.max_workers is not None:
        raise ValueError("--spare does not work with --hosts-from")
    if arguments.spare and (arguments.min_workers is None or not arguments.restarts):
        raise ValueError(
            "--spare is for processes that start again while others train; add --min-workers 2 --restarts 5"
        )


def workers_of(arguments: argparse.Namespace) -> int:
    """Returns the number of workers; a chief takes a GPU of its own."""
    if arguments.workers is None:
        return 1
    if arguments.workers != AUTO:
        return int(arguments.workers)
    if arguments.hosts is not None:
        raise ValueError(
            "--workers auto counts the GPUs of this host; write --hosts a:4,b:4 for several hosts"
        )
    gpus = len(visible_gpus(os.environ)) // max(1, arguments.gpus_per_worker or 1)
    return max(1, gpus) - int(arguments.chief)


def port_base_of(arguments: argparse.Namespace, total: int) -> int | None:
    """Returns the first of the ports of `total` processes; None for free ports."""
    base: int | None = arguments.port_base
    if base is not None and base + total - 1 > 65535:
        raise ValueError(f"--port-base {base} with {total} processes goes beyond port 65535")
    return base


def command_of(arguments: argparse.Namespace) -> list[str]:
    """Returns the command that each process runs."""
    python = arguments.python
    if arguments.module:
        return [python, "-m", arguments.script, *arguments.arguments]
    if not Path(arguments.script).is_file():
        raise ValueError(f"there is no script {arguments.script!r}; for a module write -m")
    return [python, arguments.script, *arguments.arguments]


def share_of(
    arguments: argparse.Namespace,
    everywhere: Sequence[PlannedProcess],
    plan: Sequence[PlannedProcess],
    colour: bool | None = None,
) -> Share:
    """Returns the share of a host.

    Args:
        arguments: of tfs-run.
        everywhere: the processes of all hosts, also those that may start later.
        plan: the processes of the host.
        colour: as for `Share`.
    """
    return Share(
        tuple(plan),
        tuple(command_of(arguments)),
        tuple(planned.name for planned in everywhere),
        arguments.threads,
        arguments.gpus_per_worker,
        arguments.survivor_wait,
        arguments.grace,
        None if arguments.log_dir is None else str(arguments.log_dir),
        _shown(arguments, everywhere),
        colour,
        min_workers=_min_workers(arguments, everywhere if arguments.max_workers is None else plan),
        spare=arguments.spare,
    )


def _shown(arguments: argparse.Namespace, plan: Sequence[PlannedProcess]) -> tuple[str, ...] | None:
    """Returns the names of the processes that --filter lists; None without it."""
    if arguments.filter is None:
        return None
    names = {planned.name.replace(" ", ""): planned.name for planned in plan}
    ranks = {str(rank): planned.name for rank, planned in enumerate(each for each in plan if each.trains)}
    unknown = [each for each in arguments.filter if each not in {**names, **ranks}]
    if unknown:
        raise ValueError(f"--filter has {unknown[0]!r}; the processes are {', '.join([*ranks, *names])}")
    return tuple({**names, **ranks}[each] for each in arguments.filter)


def _min_workers(arguments: argparse.Namespace, plan: Sequence[PlannedProcess]) -> int | None:
    least: int | None = arguments.min_workers
    if least is None:
        return None if arguments.max_workers is None else 1
    if arguments.hosts is not None:
        raise ValueError(
            "--min-workers does not work with --hosts; write --hosts-from and --max-workers for several hosts, or start each "
            "process by a supervisor of its own, such as systemd or a Kubernetes Job"
        )
    training = sum(planned.trains for planned in plan)
    if least > training:
        raise ValueError(f"--min-workers {least} is more than the {training} workers")
    return least


def environment_of(arguments: argparse.Namespace, held: contextlib.ExitStack) -> dict[str, str]:
    """Prepares what the processes of a job share until its end. Returns their environment, which names it.

    That is the file of a secret, the user's or a new one if all processes are started here; with --tls new certificates; and an
    arbiter, if tfs-run runs one for the job.
    """
    environ = {**os.environ, **named_variables(os.environ, arguments.env)}
    if arguments.hosts is None and not environ.get(SECRET_FILE):
        environ[SECRET_FILE] = held.enter_context(temporary_secret_file())
    if arguments.tls:
        if arguments.hosts is not None:
            raise ValueError(f"--tls makes certificates for one machine; with --hosts set {TLS_FOLDER}")
        environ[TLS_FOLDER] = held.enter_context(temporary_certificates())
    arbiter = arbiter_address(arguments, environ, held)
    if arbiter is not None:
        hold_arbiter(arbiter, environ, held)
        environ[ARBITER] = arbiter
    return environ
