"""The command line of programs that a scheduler starts as tasks, and that become a command with TF_CONFIG."""

from __future__ import annotations

import argparse
import os
from typing import Callable, Sequence

__all__ = ["become_task"]


def become_task(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    tf_config: Callable[[argparse.Namespace], str],
) -> None:
    """Becomes the command that follows the options. Ends the program with an error if there is no TF_CONFIG.

    Args:
        parser: knows the options.
        argv: the arguments; those of this process by default.
        tf_config: returns the TF_CONFIG of this task, given the options, or raises ValueError.
    """
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(argv)
    if not arguments.command:
        parser.error("no command to run")
    try:
        os.environ["TF_CONFIG"] = tf_config(arguments)
    except ValueError as error:
        parser.error(str(error))
    os.execvp(arguments.command[0], arguments.command)
