"""Defines the command line of tfs-doctor."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from pathlib import Path
from typing import NoReturn, Sequence

from tf_strategies.cluster import Cluster
from tf_strategies.doctor.collecting import write_collection
from tf_strategies.doctor.run import Options, examine
from tf_strategies.errors import ClusterConfigError

__all__ = ["main"]

_DESCRIPTION = """Examines the hosts and the network of a job before it starts. Start it like the job: with tfs-run
(tfs-run --hosts a:4,b:4 -m tf_strategies.doctor), or on each node with its TF_CONFIG. Without TF_CONFIG it examines this
host alone. It exits with 1 if it finds an error."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs tfs-doctor.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        0 if there is no error, else 1. Wrong arguments exit with status 2.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no such folder")
    if arguments.collect is not None:
        return write_collection(arguments.collect, arguments.log_dir, os.environ)
    options = Options(
        wait=arguments.wait,
        strict=arguments.strict,
        json=arguments.json,
        tries_library=not arguments.without_library,
    )
    try:
        cluster = Cluster.from_tf_config()
    except ClusterConfigError as error:
        print(f"error tf_config: {error}\n\nverdict: 1 error: correct that before the job starts", flush=True)
        return 1
    try:
        return asyncio.run(examine(cluster, options))
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"tfs-doctor: error: {message}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tfs-doctor", description=_DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--wait",
        type=_seconds,
        default=10.0,
        metavar="S",
        help="seconds to wait for tasks that do not answer (default 10), and for operations that load slowly (default 22)",
    )
    add("--strict", action="store_true", help="exit with 1 for warnings, too")
    add("--json", type=Path, metavar="FILE", help="also write all that was found to a file")
    add(
        "--without-library",
        action="store_true",
        help="do not try whether the operations load, which takes seconds",
    )
    add(
        "--collect",
        nargs="?",
        type=Path,
        const=Path("tfs-doctor.tar.gz"),
        metavar="FILE",
        help="write an archive for a bug report, without secrets (default tfs-doctor.tar.gz), and examine nothing",
    )
    add(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="with --collect: a folder with logs of the job, such as tfs-run's",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to 3600")
    return value
