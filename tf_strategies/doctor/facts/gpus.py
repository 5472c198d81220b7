"""Asks nvidia-smi for the GPUs of this host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import List, Tuple

from tf_strategies.doctor.programs import run_within

__all__ = ["find_gpus"]

_SECONDS = 8.0
_QUERY = ("--query-gpu=name,driver_version", "--format=csv,noheader")


def find_gpus() -> Tuple[List[str], str, str]:
    """Returns the names of the GPUs, the version of the driver, and an error.

    Returns:
        An empty list, "" and "" on a host without GPUs. The error is why nvidia-smi failed or is missing.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        devices = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
        return [], "", f"{devices[0]} is here, and the program nvidia-smi is not" if devices else ""
    try:
        done = run_within([program, *_QUERY], _SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], "", f"nvidia-smi failed: {error}"[:300]
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no error was written"]
        return [], "", f"nvidia-smi failed with status {done.returncode}: {said[-1]}"[:300]
    rows = [line.rpartition(", ") for line in done.stdout.splitlines() if ", " in line]
    return [row[0] for row in rows], rows[0][2] if rows else "", ""
