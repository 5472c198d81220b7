"""Runs the command tfs-run."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shlex
import sys
from pathlib import Path
from typing import Callable, Sequence

from tf_strategies.addresses import split_address
from tf_strategies.launcher.arguments import AUTO, make_parser
from tf_strategies.launcher.certificates import temporary_certificates
from tf_strategies.launcher.cluster_plan import LOCAL_HOST, Counts, PlannedProcess, plan_cluster
from tf_strategies.launcher.environment import visible_gpus
from tf_strategies.launcher.growth import begins_with
from tf_strategies.launcher.host_lists import Slots, slots_of
from tf_strategies.launcher.host_watch import HostWatch
from tf_strategies.launcher.hosts import find_this_host
from tf_strategies.launcher.output import wants_colour
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.launcher.remote_hosts import Ssh, carried_variables, named_variables, remote_supervisor
from tf_strategies.launcher.share import Share
from tf_strategies.launcher.supervisor import Supervisor, exits_on_signals, say
from tf_strategies.secret import SECRET_FILE, new_secret, read_secret, temporary_secret_file
from tf_strategies.tls import TLS_FOLDER


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
            slots = None if arguments.hosts is None else slots_of(arguments.hosts)
            watch = _host_watch(arguments)
            plan = _plan(arguments, held) if slots is None else _plan_over_ssh(arguments, slots)
            if arguments.dry_run:
                begun = plan if watch is None else begins_with(plan, _workers(arguments))
                _print(begun, _command(arguments))
                return 0
            make = (
                _supervisor_here(arguments, plan, held, watch)
                if slots is None
                else _over_ssh(arguments, plan, slots)
            )
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
            supervisor = make()
            supervisor.restarts_left = left
            status = supervisor.run()
    return status


def _host_watch(arguments: argparse.Namespace) -> HostWatch | None:
    """Returns who knows the places of further workers; None if there are none. It has asked once."""
    if arguments.max_workers is None and arguments.hosts_from is None:
        return None
    if arguments.max_workers is None or arguments.hosts_from is None:
        raise ValueError("--max-workers and --hosts-from need each other")
    for option in ("hosts", "this_host", "chief", "ps", "evaluator"):
        if getattr(arguments, option):
            raise ValueError(
                f"--max-workers starts workers on one machine, without --{option.replace('_', '-')}"
            )
    workers = _workers(arguments)
    if not 1 <= workers <= arguments.max_workers:
        raise ValueError(
            f"--max-workers {arguments.max_workers} must be at least --workers {workers}, which must be at least 1"
        )
    watch = HostWatch(arguments.hosts_from)
    if watch.places < workers:
        raise ValueError(
            f"--hosts-from names places for {watch.places} workers on this machine, fewer than --workers {workers}"
        )
    return watch


def _plan(arguments: argparse.Namespace, held: contextlib.ExitStack) -> list[PlannedProcess]:
    """Returns the processes of all hosts, and reserves their ports until the end if all run here."""
    workers = arguments.max_workers or _workers(arguments)
    counts = Counts(workers, arguments.chief, arguments.ps, arguments.evaluator)
    if not counts.workers and not counts.chief:
        raise ValueError("no process would train: --workers 0 needs --chief")
    base = _port_base(arguments, counts)
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
    base = _port_base(arguments, counts)
    hosts = [each.host for each in slots for _ in range(each.workers)]
    listed = [planned.host for planned in plan_cluster(counts, hosts, lambda host, position: 1)]
    needed = {each.target: 0 if base is not None else listed.count(each.host) for each in slots}
    found = Ssh(arguments.ssh, arguments.python).free_ports(needed)
    if base is not None:
        return plan_cluster(counts, hosts, lambda host, position: base + position)
    free = {each.host: iter(found[each.target]) for each in slots}
    return plan_cluster(counts, hosts, lambda host, position: next(free[host]))


def _port_base(arguments: argparse.Namespace, counts: Counts) -> int | None:
    base: int | None = arguments.port_base
    total = len(counts.tasks())
    if base is not None and base + total - 1 > 65535:
        raise ValueError(f"--port-base {base} with {total} processes goes beyond port 65535")
    return base


def _workers(arguments: argparse.Namespace) -> int:
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


def _supervisor_here(
    arguments: argparse.Namespace,
    plan: Sequence[PlannedProcess],
    held: contextlib.ExitStack,
    watch: HostWatch | None,
) -> Callable[[], Supervisor]:
    """Returns a function that makes a supervisor of the processes of this host."""
    if watch is None:
        share = _share(arguments, plan, _of_this_host(arguments, plan))
        return functools.partial(share.supervisor, _with_secrets(arguments, held))
    workers = _workers(arguments)
    share = _share(arguments, plan, begins_with(plan, workers), further=plan[workers:])
    held.enter_context(watch)
    return functools.partial(share.supervisor, _with_secrets(arguments, held), lambda: watch.places)


def _over_ssh(
    arguments: argparse.Namespace, plan: Sequence[PlannedProcess], slots: Sequence[Slots]
) -> Callable[[], Supervisor]:
    """Returns a function that makes a supervisor of the launchers of all hosts."""
    if arguments.tls:
        raise ValueError(f"--tls makes certificates for one machine; with --hosts set {TLS_FOLDER}")
    colour = all(wants_colour(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    shares = {
        each.target: _share(
            arguments, plan, [planned for planned in plan if planned.host == each.host], colour
        )
        for each in slots
    }
    secret = read_secret().hex() or new_secret()
    environ = carried_variables(os.environ, arguments.env)
    return functools.partial(
        remote_supervisor, Ssh(arguments.ssh, arguments.python), shares, secret=secret, environ=environ
    )


def _share(
    arguments: argparse.Namespace,
    everywhere: Sequence[PlannedProcess],
    plan: Sequence[PlannedProcess],
    colour: bool | None = None,
    further: Sequence[PlannedProcess] = (),
) -> Share:
    return Share(
        tuple(plan),
        tuple(_command(arguments)),
        tuple(planned.name for planned in everywhere),
        arguments.threads,
        arguments.gpus_per_worker,
        arguments.survivor_wait,
        arguments.grace,
        None if arguments.log_dir is None else str(arguments.log_dir),
        _shown(arguments, everywhere),
        colour,
        min_workers=_min_workers(arguments, everywhere if arguments.max_workers is None else plan),
        further=tuple(further),
    )


def _min_workers(arguments: argparse.Namespace, plan: Sequence[PlannedProcess]) -> int | None:
    least: int | None = arguments.min_workers
    if least is None:
        return None if arguments.max_workers is None else 1
    if arguments.hosts is not None:
        raise ValueError(
            "--min-workers is for one machine; on several hosts start each process by a supervisor of its own, such as "
            "systemd or a Kubernetes Job"
        )
    training = sum(planned.trains for planned in plan)
    if least > training:
        raise ValueError(f"--min-workers {least} is more than the {training} workers")
    return least


def _of_this_host(arguments: argparse.Namespace, plan: Sequence[PlannedProcess]) -> Sequence[PlannedProcess]:
    if arguments.hosts is None:
        return plan
    hosts = _hosts(arguments.hosts)
    here = find_this_host(hosts) if arguments.this_host is None else arguments.this_host
    if here not in hosts:
        raise ValueError(f"--this-host {here} is none of --hosts {','.join(hosts)}")
    return [planned for planned in plan if planned.host == here]


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


def _print(plan: Sequence[PlannedProcess], command: Sequence[str]) -> None:
    """Prints the command of each process, as one would type it on the process's host."""
    for planned in plan:
        print(f"# {planned.name} on {planned.host}")
        print(f"TF_CONFIG={shlex.quote(planned.tf_config)} {shlex.join(command)}")


def _with_secrets(arguments: argparse.Namespace, held: contextlib.ExitStack) -> dict[str, str]:
    """Returns the environment with the file of a secret: the user's, or a new one if all processes are started here.

    With --tls it names new certificates, too.
    """
    environ = {**os.environ, **named_variables(os.environ, arguments.env)}
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
    python = arguments.python
    if arguments.module:
        return [python, "-m", arguments.script, *arguments.arguments]
    if not Path(arguments.script).is_file():
        raise ValueError(f"there is no script {arguments.script!r}; for a module write -m")
    return [python, arguments.script, *arguments.arguments]


if __name__ == "__main__":
    sys.exit(main())
