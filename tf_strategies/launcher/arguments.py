"""Defines the command line of tfs-run."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import NoReturn

from tf_strategies.launcher.environment import THREAD_VARIABLES
from tf_strategies.launcher.supervisor import say
from tf_strategies.options import check_arbiter

AUTO = -1  # the number of workers for --workers auto
_USAGE = "tfs-run [options] script.py [arguments ...]\n       tfs-run [options] -m module [arguments ...]"
_DESCRIPTION = "Runs a script in every process of a training cluster, with TF_CONFIG set for each."


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say(f"error: {message}")
        sys.exit(2)


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = _Parser(prog="tfs-run", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--workers",
        type=_workers,
        metavar="N",
        help="worker processes (default 1); auto: one for each GPU, or one",
    )
    add("--chief", action="store_true", help="one chief beside the workers")
    add("--ps", type=_count, default=0, metavar="N", help="parameter servers")
    add("--evaluator", action="store_true", help="one evaluator")
    add(
        "--hosts",
        metavar="A,B",
        help="spread the processes over hosts, and start those of this host. A:4,B:4 starts all over ssh; so do "
        "@FILE, and auto for the hosts of a job",
    )
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
        "--gpus-per-worker",
        type=_count,
        metavar="N",
        help="GPUs for each chief and worker; no GPU is shared (default: an equal share)",
    )
    add(
        "--restarts",
        type=_count,
        default=0,
        metavar="N",
        help="after a failure, start all processes again, up to N times; with --min-workers, first the one that failed",
    )
    add(
        "--min-workers",
        type=_positive,
        metavar="N",
        help="let the others run on after a failure while this many workers are left, for elastic training (several hosts: "
        "--hosts-from)",
    )
    add(
        "--spare",
        action="store_true",
        help="keep a process ready that has imported TensorFlow, so that a lost one starts again some seconds sooner (with "
        "--min-workers and --restarts; takes the memory of the import)",
    )
    add(
        "--max-workers",
        type=_positive,
        metavar="N",
        help="start further workers, up to N at once, on places that --hosts-from names later, for elastic training",
    )
    add(
        "--arbiter",
        type=_address,
        metavar="HOST:PORT",
        help="decide here, at an address of this machine that all workers reach, which half of the workers goes on if they "
        "lose each other (default with --min-workers on one machine: a free port)",
    )
    add(
        "--hosts-from",
        metavar="COMMAND",
        help="a command that prints a host, or host:slots, in each line, asked every 2 s; @FILE reads a file. Workers start on "
        "these hosts, on others than this one over ssh",
    )
    add(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="write the output of each process to a file there, as well",
    )
    add(
        "--filter",
        type=_listed,
        metavar="A,B",
        help="show the output of these alone: ranks such as 0, names such as ps0",
    )
    add("--ssh", default="ssh", metavar="COMMAND", help="the ssh command with its options (default: ssh)")
    add(
        "--python",
        type=_python,
        default=sys.executable,
        metavar="PATH",
        help="the interpreter of the processes (default: the path of this one)",
    )
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for the processes; those on other hosts get TF_*, OMP_* and the like without it",
    )
    add("--dry-run", action="store_true", help="print the command of each process, and start none")
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


def _number(text: str, low: int, high: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:9]) <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 0, 100_000, "a count")


def _workers(text: str) -> int:
    return AUTO if text == "auto" else _count(text)


def _python(text: str) -> str:
    """Returns a path that other folders know, too. A name without a folder is looked up on each host."""
    return str(Path.cwd() / text) if os.sep in text else text


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _positive(text: str) -> int:
    return _number(text, 1, 100_000, "a count of at least 1")


def _port(text: str) -> int:
    return _number(text, 1, 65535, "a port from 1 to 65535")


def _address(text: str) -> str:
    try:
        check_arbiter(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port: {error}") from None
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
