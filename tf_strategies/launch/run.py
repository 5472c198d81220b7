"""Runs the command tfs-run."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Sequence

from tf_strategies.addresses import split_address
from tf_strategies.launch.arguments import make_parser
from tf_strategies.launch.certificates import temporary_certificates
from tf_strategies.launch.cluster_plan import LOCAL_HOST, Counts, PlannedProcess, plan_cluster
from tf_strategies.launch.environment import (
    THREAD_VARIABLES,
    environments,
    fair_threads,
    share_gpus,
    visible_gpus,
)
from tf_strategies.launch.hosts import find_this_host
from tf_strategies.launch.ports import ReservedPorts
from tf_strategies.launch.supervisor import Patience, Supervisor, say
from tf_strategies.launch.task_output import OutputOptions
from tf_strategies.secret import SECRET_FILE, temporary_secret_file
from tf_strategies.tls import TLS_FOLDER


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a cluster, or this host's share of it.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        0 if all processes succeeded, else the status of the first process that failed (128 + N for signal N).
        Wrong arguments exit with status 2 and one line of text.
    """
    parser = make_parser()
    arguments = parser.parse_args(argv)
    try:
        with contextlib.ExitStack() as held:
            everywhere = _plan(arguments, held)
            command = _command(arguments)
            if arguments.dry_run:
                _print(everywhere, command)
                return 0
            plan = _of_this_host(arguments, everywhere)
            environ = _with_secrets(arguments, held)
            gpus = share_gpus(plan, visible_gpus(environ), arguments.gpus_per_worker)
            envs = environments(plan, environ, arguments.threads, gpus)
            output = OutputOptions(arguments.log_dir, _shown(arguments, everywhere))
            kept = held.pop_all()
    except ValueError as error:
        parser.error(str(error))
    with kept:
        _announce(arguments, plan, gpus)
        patience = Patience(arguments.survivor_wait, arguments.grace)
        for restarts in range(arguments.restarts + 1):
            try:
                supervisor = Supervisor(plan, envs, command, patience, output)
            except OSError as error:
                parser.error(f"--log-dir {arguments.log_dir}: {error}")
            status = supervisor.run()
            if status == 0 or supervisor.interrupted or restarts == arguments.restarts:
                break
            say(f"restart {restarts + 1} of {arguments.restarts}: all processes start again")
    return status


def _plan(arguments: argparse.Namespace, held: contextlib.ExitStack) -> list[PlannedProcess]:
    """Returns the processes of all hosts, and reserves their ports until the end if all run here."""
    counts = Counts(_workers(arguments), arguments.chief, arguments.ps, arguments.evaluator)
    if not counts.workers and not counts.chief:
        raise ValueError("no process would train: --workers 0 needs --chief")
    total = len(counts.tasks())
    base = arguments.port_base
    if base is not None and base + total - 1 > 65535:
        raise ValueError(f"--port-base {base} with {total} processes goes beyond port 65535")
    if arguments.hosts is None:
        if arguments.this_host is not None:
            raise ValueError("--this-host needs --hosts")
        if base is not None:
            return plan_cluster(counts, [LOCAL_HOST], lambda host, position: base + position)
        ports = held.enter_context(ReservedPorts(total)).ports
        return plan_cluster(counts, [LOCAL_HOST], lambda host, position: ports[position])
    if base is None:
        raise ValueError("--hosts needs --port-base, so that every host computes the same ports")
    return plan_cluster(counts, _hosts(arguments.hosts), lambda host, position: base + position)


def _workers(arguments: argparse.Namespace) -> int:
    """Returns the number of workers; a chief takes a GPU of its own."""
    if arguments.workers is not None:
        return int(arguments.workers)
    if arguments.hosts is not None:
        raise ValueError(
            "--workers auto counts the GPUs of this host; with --hosts give the number of all workers"
        )
    gpus = len(visible_gpus(os.environ)) // max(1, arguments.gpus_per_worker or 1)
    return max(1, gpus) - int(arguments.chief)


def _of_this_host(arguments: argparse.Namespace, plan: list[PlannedProcess]) -> list[PlannedProcess]:
    if arguments.hosts is None:
        return plan
    hosts = _hosts(arguments.hosts)
    here = find_this_host(hosts) if arguments.this_host is None else arguments.this_host
    if here not in hosts:
        raise ValueError(f"--this-host {here} is none of --hosts {','.join(hosts)}")
    return [planned for planned in plan if planned.host == here]


def _shown(arguments: argparse.Namespace, plan: list[PlannedProcess]) -> frozenset[str] | None:
    """Returns the names of the processes that --filter lists; None without it."""
    if arguments.filter is None:
        return None
    names = {planned.name.replace(" ", ""): planned.name for planned in plan}
    ranks = {str(rank): planned.name for rank, planned in enumerate(each for each in plan if each.trains)}
    unknown = [each for each in arguments.filter if each not in {**names, **ranks}]
    if unknown:
        raise ValueError(f"--filter has {unknown[0]!r}; the processes are {', '.join([*ranks, *names])}")
    return frozenset({**names, **ranks}[each] for each in arguments.filter)


def _print(plan: list[PlannedProcess], command: list[str]) -> None:
    """Prints the command of each process, as one would type it on the process's host."""
    for planned in plan:
        print(f"# {planned.name} on {planned.host}")
        print(f"TF_CONFIG={shlex.quote(planned.tf_config)} {shlex.join(command)}")


def _with_secrets(arguments: argparse.Namespace, held: contextlib.ExitStack) -> dict[str, str]:
    """Returns the environment with the file of a secret: the user's, or a new one if all processes are started here.

    With --tls it names new certificates, too.
    """
    environ = dict(os.environ)
    if arguments.hosts is None and not environ.get(SECRET_FILE):
        environ[SECRET_FILE] = held.enter_context(temporary_secret_file())
    if arguments.tls:
        if arguments.hosts is not None:
            raise ValueError(f"--tls makes certificates for one machine; with --hosts set {TLS_FOLDER}")
        environ[TLS_FOLDER] = held.enter_context(temporary_certificates())
    return environ


def _hosts(text: str) -> list[str]:
    hosts = [host.strip().strip("[]") for host in text.split(",")]
    for host in hosts:
        try:
            split_address(f"[{host}]:1" if ":" in host else f"{host}:1")
        except ValueError as error:
            raise ValueError(f"--hosts has {host!r}: {error}") from None
    twice = next((host for host in hosts if hosts.count(host) > 1), None)
    if twice is not None:
        raise ValueError(f"--hosts names {twice} twice")
    return hosts


def _command(arguments: argparse.Namespace) -> list[str]:
    if arguments.module:
        return [sys.executable, "-m", arguments.script, *arguments.arguments]
    if not Path(arguments.script).is_file():
        raise ValueError(f"there is no script {arguments.script!r}; for a module write -m")
    return [sys.executable, arguments.script, *arguments.arguments]


def _announce(arguments: argparse.Namespace, plan: Sequence[PlannedProcess], gpus: int | None) -> None:
    processes = len(plan)
    unset = [name for name in THREAD_VARIABLES if arguments.threads is not None or name not in os.environ]
    threads = arguments.threads if arguments.threads is not None else fair_threads(processes)
    remark = f", {' = '.join([*unset, str(threads)])} (change with --threads)" if unset else ""
    if gpus is not None and arguments.gpus_per_worker is None:
        remark += f", {gpus or 'no'} {'GPU' if gpus == 1 else 'GPUs'} for each worker (change with --gpus-per-worker)"
    say(f"starting {processes} {'process' if processes == 1 else 'processes'}{remark}")


if __name__ == "__main__":
    sys.exit(main())
