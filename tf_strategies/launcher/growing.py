"""Prepares jobs to which further workers are added, from the options of tfs-run."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from typing import Callable, Mapping, Sequence

from tf_strategies.launcher.cluster_plan import PlannedProcess
from tf_strategies.launcher.growth import Growth
from tf_strategies.launcher.host_watch import HostWatch
from tf_strategies.launcher.machines import Machine, Machines
from tf_strategies.launcher.output import wants_colour
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.remote_hosts import LATER_SECONDS, SSH_FAILED, RemoteShare, Ssh, carried_variables
from tf_strategies.launcher.settings import environment_of, port_base_of, share_of, workers_of
from tf_strategies.launcher.share import Share
from tf_strategies.launcher.supervisor import Supervisor
from tf_strategies.options import ARBITER
from tf_strategies.secret import read_secret

__all__ = ["grows", "prepare_growth"]


def grows(arguments: argparse.Namespace) -> bool:
    """Returns True if workers may be added to a job."""
    return arguments.max_workers is not None or arguments.hosts_from is not None


def prepare_growth(
    arguments: argparse.Namespace, held: contextlib.ExitStack
) -> tuple[Sequence[PlannedProcess], Callable[[], Callable[[], Supervisor]]]:
    """Returns the workers that start first, and a function that prepares their supervisors.

    Args:
        arguments: of tfs-run.
        held: keeps what the job needs until its end.

    Raises:
        ValueError: options exclude each other, or there are too few places.
    """
    workers = _checked_workers(arguments)
    most = arguments.max_workers
    everyone = [PlannedProcess("worker", index, "", "", "") for index in range(most)]
    ssh = Ssh(arguments.ssh, arguments.python)
    alone = "--tls makes certificates for one machine" if arguments.tls else ""
    machines = Machines(most, ssh, why_alone=alone, port_base=port_base_of(arguments, most))
    watch = HostWatch(arguments.hosts_from, held.enter_context(machines))
    named = {} if arguments.arbiter is None else {ARBITER: arguments.arbiter}
    starter = _Starter(ssh, machines, carried_variables({**os.environ, **named}, arguments.env))
    share = share_of(arguments, everyone, everyone[:workers])
    share = dataclasses.replace(share, later=0.0 if alone else LATER_SECONDS)
    growth = Growth(share, lambda: watch.places, most, starter)
    growth.begin(workers)

    def prepare() -> Callable[[], Supervisor]:
        held.enter_context(watch)
        starter.give(environment_of(arguments, held))
        return growth.supervisor

    return growth.begun(), prepare


def _checked_workers(arguments: argparse.Namespace) -> int:
    """Returns the number of workers with which the job begins."""
    if arguments.max_workers is None or arguments.hosts_from is None:
        raise ValueError("--max-workers and --hosts-from need each other")
    for option in ("hosts", "this_host", "chief", "ps", "evaluator"):
        if getattr(arguments, option):
            raise ValueError(f"--max-workers starts workers alone, without --{option.replace('_', '-')}")
    workers = workers_of(arguments)
    if not 1 <= workers <= arguments.max_workers:
        raise ValueError(
            f"--max-workers {arguments.max_workers} must be at least --workers {workers}, which must be at least 1"
        )
    return workers


class _Starter:
    """Starts workers on this machine and on others.

    Args:
        ssh: starts those of other machines.
        machines: is told which of them were lost.
        carried: the variables that those of other machines get from here.
    """

    def __init__(self, ssh: Ssh, machines: Machines, carried: Mapping[str, str]) -> None:
        self._ssh, self._machines, self._carried = ssh, machines, carried
        self._environ: Mapping[str, str] = {}
        self._secret = ""

    def give(self, environ: Mapping[str, str]) -> None:
        """Gives the environment that workers of this machine inherit. It names the file of the secret."""
        self._environ, self._secret = environ, read_secret(environ).hex()

    def ended(self, machine: Machine, process: LaunchedProcess) -> None:
        """Notes that a worker of a machine has ended, which may have been lost."""
        if machine.target and process.status == SSH_FAILED:
            self._machines.doubt(machine)

    def require_gpus(self, share: Share) -> None:
        """Raises ValueError if this machine has not enough GPUs for a share."""
        share.environments(self._environ)

    def announce(self, share: Share) -> None:
        """Says what will start on this machine."""
        share.announce(self._environ)

    def start(self, machine: Machine, share: Share, more: Mapping[str, str]) -> LaunchedProcess:
        """Starts the only process of a share on a machine, with further variables."""
        name = share.plan[0].name
        if not machine.target:
            return LaunchedProcess(name, share.command, {**share.environments(self._environ)[0], **more})
        colour = all(wants_colour(stream.fileno()) for stream in (sys.stdout, sys.stderr))
        apart = dataclasses.replace(share, colour=colour, min_workers=None, later=0.0, quiet=True)
        environ = {**self._carried, **more}
        return RemoteShare(name, self._ssh, machine.target, apart, self._secret, environ)
