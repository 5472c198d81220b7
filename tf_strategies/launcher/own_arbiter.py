"""Runs an arbiter in tfs-run, for jobs that go on when workers are lost."""

from __future__ import annotations

import argparse
import contextlib
from typing import Mapping

from tf_strategies.addresses import join_address
from tf_strategies.errors import BootstrapError
from tf_strategies.launcher.cluster_plan import LOCAL_HOST
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.launcher.supervisor import say
from tf_strategies.options import ARBITER
from tf_strategies.secret import read_secret
from tf_strategies.tls import read_tls

__all__ = ["arbiter_address", "check_arbiter_options", "hold_arbiter"]


def check_arbiter_options(arguments: argparse.Namespace) -> None:
    """Raises ValueError if options of tfs-run exclude its arbiter."""
    if arguments.arbiter is None:
        return
    if arguments.hosts is not None:
        raise ValueError(
            "--arbiter does not work with --hosts; start tfs-arbiter by itself, and name it with "
            f"--env {ARBITER}={arguments.arbiter}"
        )
    if arguments.min_workers is None and arguments.max_workers is None:
        raise ValueError(
            "--arbiter is for jobs that outlive workers: it needs --min-workers or --max-workers"
        )
    if any(each.partition("=")[0] == ARBITER for each in arguments.env):
        raise ValueError(f"--arbiter and --env {ARBITER} exclude each other")


def arbiter_address(
    arguments: argparse.Namespace, environ: Mapping[str, str], held: contextlib.ExitStack
) -> str | None:
    """Returns the address of the arbiter that tfs-run runs for a job; None if it runs none.

    By default it runs one if workers may be lost and all are on this machine. One that the user names is not replaced.

    Args:
        arguments: of tfs-run.
        environ: the environment of the processes.
        held: keeps the port until the end.
    """
    if arguments.arbiter is not None:
        return str(arguments.arbiter)
    if environ.get(ARBITER) or arguments.min_workers is None or arguments.hosts_from is not None:
        return None
    port = held.enter_context(ReservedPorts(1)).ports[0]
    return join_address(LOCAL_HOST, port)


def hold_arbiter(address: str, environ: Mapping[str, str], held: contextlib.ExitStack) -> None:
    """Runs an arbiter until the end.

    Args:
        address: "host:port", of this machine.
        environ: the environment of the processes, which names the secret and the certificates.
        held: ends it.

    Raises:
        ValueError: the address cannot be listened on.
    """
    # Most jobs have no arbiter, and gRPC takes a moment to import.
    from tf_strategies.arbiter.serving import ArbiterServer
    from tf_strategies.arbiter.votes import Votes

    try:
        server = ArbiterServer(address, Votes(), read_secret(environ), read_tls(environ=environ), _tell)
    except BootstrapError as error:
        raise ValueError(str(error)) from None
    held.callback(server.stop)


def _tell(text: str) -> None:
    say(f"arbiter: {text}")
