"""Runs the command tfs-run."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shlex
import sys
from typing import Callable, Sequence

from tf_strategies.addresses import split_address
from tf_strategies.launcher.arguments import make_parser
from tf_strategies.launcher.cluster_plan import LOCAL_HOST, Counts, PlannedProcess, plan_cluster
from tf_strategies.launcher.growing import grows, prepare_growth
from tf_strategies.launcher.host_lists import Slots, slots_of
from tf_strategies.launcher.hosts import find_this_host
from tf_strategies.launcher.output import wants_colour
from tf_strategies.launcher.own_arbiter import check_arbiter_options
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.launcher.remote_hosts import Ssh, carried_variables, remote_supervisor
from tf_strategies.launcher.settings import (
    check_spare,
    command_of,
    environment_of,
    port_base_of,
    share_of,
    workers_of,
)
from tf_strategies.launcher.supervisor import Supervisor, exits_on_signals, say
from tf_strategies.secret import new_secret, read_secret
from tf_strategies.tls import TLS_FOLDER

_Make = Callable[[], Supervisor]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a cluster, or this host's share of it.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        0 if all processes succeeded, else the status of the first process that failed (128 + N for signal N).
        Wrong arguments exit with status 2 and one line of text.
    """
    with exits_on_signals():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    arguments = parser.parse_args(argv)
    try:
        with contextlib.ExitStack() as held:
            plan, prepare = _prepared(arguments, held)
            if arguments.dry_run:
                _print(plan, command_of(arguments))
                return 0
            make = prepare()
            supervisor = make()
            kept = held.pop_all()
    except ValueError as error:
        parser.error(str(error))
    with kept:
        supervisor.restarts_left = arguments.restarts
        status = supervisor.run()
        while status != 0 and not supervisor.interrupted and supervisor.restarts_left > 0:
            left = supervisor.restarts_left - 1
            say(f"restart {arguments.restarts - left} of {arguments.restarts}: all processes start again")
            try:
                supervisor = make()
            except ValueError as error:
                say(f"error: {error}")
                break
            supervisor.restarts_left = left
            status = supervisor.run()
    return status


def _prepared(
    arguments: argparse.Namespace, held: contextlib.ExitStack
) -> tuple[Sequence[PlannedProcess], Callable[[], _Make]]:
    """Returns the processes that start first, and a function that prepares their supervisors."""
    check_arbiter_options(arguments)
    check_spare(arguments)
    if grows(arguments):
        return prepare_growth(arguments, held)
    slots = None if arguments.hosts is None else slots_of(arguments.hosts)
    if slots is not None:
        plan = _plan_over_ssh(arguments, slots)
        return plan, functools.partial(_over_ssh, arguments, plan, slots)
    plan = _plan(arguments, held)
    return plan, functools.partial(_here, arguments, plan, held)


def _plan(arguments: argparse.Namespace, held: contextlib.ExitStack) -> list[PlannedProcess]:
    """Returns the processes of all hosts, and reserves their ports until the end if all run here."""
    counts = Counts(workers_of(arguments), arguments.chief, arguments.ps, arguments.evaluator)
    if not counts.workers and not counts.chief:
        raise ValueError("no process would train: --workers 0 needs --chief")
    base = port_base_of(arguments, len(counts.tasks()))
    if arguments.hosts is None:
        if arguments.this_host is not None:
            raise ValueError("--this-host needs --hosts")
        if base is not None:
            return plan_cluster(counts, [LOCAL_HOST], lambda host, position: base + position)
        ports = held.enter_context(ReservedPorts(len(counts.tasks()))).ports
        return plan_cluster(counts, [LOCAL_HOST], lambda host, position: ports[position])
    if base is None:
        raise ValueError("--hosts needs --port-base, so that every host computes the same ports")
    return plan_cluster(counts, _hosts(arguments.hosts), lambda host, position: base + position)


def _plan_over_ssh(arguments: argparse.Namespace, slots: Sequence[Slots]) -> list[PlannedProcess]:
    """Returns the processes of all hosts, which have answered."""
    if arguments.workers is not None or arguments.this_host is not None:
        raise ValueError("--hosts with numbers of workers needs no --workers and no --this-host")
    training = sum(each.workers for each in slots)
    counts = Counts(training - arguments.chief, arguments.chief, arguments.ps, arguments.evaluator)
    base = port_base_of(arguments, len(counts.tasks()))
    hosts = [each.host for each in slots for _ in range(each.workers)]
    listed = [planned.host for planned in plan_cluster(counts, hosts, lambda host, position: 1)]
    needed = {each.target: 0 if base is not None else listed.count(each.host) for each in slots}
    found = Ssh(arguments.ssh, arguments.python).free_ports(needed)
    if base is not None:
        return plan_cluster(counts, hosts, lambda host, position: base + position)
    free = {each.host: iter(found[each.target]) for each in slots}
    return plan_cluster(counts, hosts, lambda host, position: next(free[host]))


def _here(arguments: argparse.Namespace, plan: Sequence[PlannedProcess], held: contextlib.ExitStack) -> _Make:
    """Returns a function that makes a supervisor of the processes of this host."""
    share = share_of(arguments, plan, _of_this_host(arguments, plan))
    return functools.partial(share.supervisor, environment_of(arguments, held))


def _over_ssh(
    arguments: argparse.Namespace, plan: Sequence[PlannedProcess], slots: Sequence[Slots]
) -> Callable[[], Supervisor]:
    """Returns a function that makes a supervisor of the launchers of all hosts."""
    if arguments.tls:
        raise ValueError(f"--tls makes certificates for one machine; with --hosts set {TLS_FOLDER}")
    colour = all(wants_colour(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    shares = {
        each.target: share_of(
            arguments, plan, [planned for planned in plan if planned.host == each.host], colour
        )
        for each in slots
    }
    secret = read_secret().hex() or new_secret()
    environ = carried_variables(os.environ, arguments.env)
    return functools.partial(
        remote_supervisor, Ssh(arguments.ssh, arguments.python), shares, secret=secret, environ=environ
    )


def _of_this_host(arguments: argparse.Namespace, plan: Sequence[PlannedProcess]) -> Sequence[PlannedProcess]:
    if arguments.hosts is None:
        return plan
    hosts = _hosts(arguments.hosts)
    here = find_this_host(hosts) if arguments.this_host is None else arguments.this_host
    if here not in hosts:
        raise ValueError(f"--this-host {here} is none of --hosts {','.join(hosts)}")
    return [planned for planned in plan if planned.host == here]


def _print(plan: Sequence[PlannedProcess], command: Sequence[str]) -> None:
    """Prints the command of each process, as one would type it on the process's host."""
    for planned in plan:
        print(f"# {planned.name} on {planned.host}")
        print(f"TF_CONFIG={shlex.quote(planned.tf_config)} {shlex.join(command)}")


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


if __name__ == "__main__":
    sys.exit(main())
