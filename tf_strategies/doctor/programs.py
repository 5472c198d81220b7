"""Runs programs of the system, and waits for none that does not end."""

from __future__ import annotations

import queue
import subprocess
import threading
from typing import Sequence

__all__ = ["run_within"]


def run_within(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs a program, and leaves it behind when the time is over: a program that waits for a driver cannot be killed.

    Args:
        command: the program and its arguments.
        seconds: how long it may take.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: it has not ended.
    """
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    written: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    threading.Thread(target=lambda: written.put(program.communicate()), daemon=True).start()
    try:
        out, error = written.get(timeout=seconds)
    except queue.Empty:
        program.kill()
        raise subprocess.TimeoutExpired(command, seconds) from None
    return subprocess.CompletedProcess(command, program.returncode, out, error)
