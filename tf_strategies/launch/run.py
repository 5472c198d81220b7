"""The command line of tfs-run."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from pathlib import Path
from typing import NoReturn, Sequence

from tf_strategies.addresses import split_address
from tf_strategies.launch.certificates import temporary_certificates
from tf_strategies.launch.cluster_plan import LOCAL_HOST, Counts, PlannedProcess, plan_cluster
from tf_strategies.launch.environment import THREAD_VARIABLES, environments, fair_threads
from tf_strategies.launch.hosts import find_this_host
from tf_strategies.launch.ports import ReservedPorts
from tf_strategies.launch.supervisor import Patience, Supervisor, say
from tf_strategies.secret import SECRET_FILE, temporary_secret_file
from tf_strategies.tls import TLS_FOLDER

_USAGE = "tfs-run [options] script.py [arguments ...]\n       tfs-run [options] -m module [arguments ...]"
_DESCRIPTION = "Runs a script in every process of a training cluster, with TF_CONFIG set for each."


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say(f"error: {message}")
        sys.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a cluster, or this host's share of it.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        0 if all processes succeeded, else the status of the first process that failed (128 + N for signal N).
        Wrong arguments exit with status 2 and one line of text.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        with contextlib.ExitStack() as held:
            plan = _plan(arguments, held)
            environ = _with_secrets(arguments, held)
            envs = environments(plan, environ, arguments.threads, arguments.gpus_per_worker)
            command = _command(arguments)
            kept = held.pop_all()
    except ValueError as error:
        parser.error(str(error))
    with kept:
        _announce(arguments, len(plan))
        return Supervisor(plan, envs, command, Patience(arguments.survivor_wait, arguments.grace)).run()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tfs-run", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add("--workers", type=_count, default=1, metavar="N", help="worker processes (default 1)")
    add("--chief", action="store_true", help="one chief beside the workers")
    add("--ps", type=_count, default=0, metavar="N", help="parameter servers")
    add("--evaluator", action="store_true", help="one evaluator")
    add("--hosts", metavar="A,B", help="spread the processes over hosts, and start those of this host")
    add(
        "--this-host",
        metavar="A",
        help="the name of this host among them (default: found by name or address)",
    )
    add(
        "--port-base",
        type=_port,
        metavar="N",
        help="the first port; process n of all uses N + n (with --hosts)",
    )
    add(
        "--threads",
        type=_positive,
        metavar="N",
        help=f"{' and '.join(THREAD_VARIABLES)} of each (default: a share)",
    )
    add(
        "--gpus-per-worker", type=_count, metavar="N", help="GPUs for each chief and worker; no GPU is shared"
    )
    add(
        "--survivor-wait",
        type=_seconds,
        default=6.0,
        metavar="S",
        help="after a failure, before the others are ended",
    )
    add(
        "--grace",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="between the signal to end and SIGKILL (default 5)",
    )
    add("--tls", action="store_true", help="TLS between the workers, with new certificates (one machine)")
    add("-m", dest="module", action="store_true", help="run a module instead of a script")
    add("script", help="the script or module")
    add("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _plan(arguments: argparse.Namespace, held: contextlib.ExitStack) -> list[PlannedProcess]:
    """Returns the processes of this host, and the sockets that reserve their ports until the end."""
    counts = Counts(arguments.workers, arguments.chief, arguments.ps, arguments.evaluator)
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
    hosts = _hosts(arguments.hosts)
    if base is None:
        raise ValueError("--hosts needs --port-base, so that every host computes the same ports")
    here = find_this_host(hosts) if arguments.this_host is None else arguments.this_host
    if here not in hosts:
        raise ValueError(f"--this-host {here} is none of --hosts {','.join(hosts)}")
    plan = plan_cluster(counts, hosts, lambda host, position: base + position)
    return [planned for planned in plan if planned.host == here]


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


def _announce(arguments: argparse.Namespace, processes: int) -> None:
    unset = [name for name in THREAD_VARIABLES if arguments.threads is not None or name not in os.environ]
    threads = arguments.threads if arguments.threads is not None else fair_threads(processes)
    remark = f", {' = '.join([*unset, str(threads)])} (change with --threads)" if unset else ""
    say(f"starting {processes} {'process' if processes == 1 else 'processes'}{remark}")


def _number(text: str, low: int, high: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:9]) <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 0, 100_000, "a count")


def _positive(text: str) -> int:
    return _number(text, 1, 100_000, "a count of at least 1")


def _port(text: str) -> int:
    return _number(text, 1, 65535, "a port from 1 to 65535")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
