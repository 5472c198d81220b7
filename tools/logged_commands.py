"""Runs commands with their output in files of .build/log/, one line each on the terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

__all__ = ["install", "run_logged"]

ROOT = Path(__file__).resolve().parents[1]
INSTALL_SECONDS = 1200


def install(python: Path, arguments: list[str], name: str) -> None:
    """Runs `pip install` for an interpreter. Ends the program if it fails."""
    run_logged([str(python), "-m", "pip", "install", "-q", *arguments], name, INSTALL_SECONDS)


def run_logged(
    command: list[str],
    name: str,
    seconds: float,
    environ: dict[str, str] | None = None,
    *,
    may_fail: bool = False,
) -> bool:
    """Runs a command with its output in a file; returns True if it ended well.

    Args:
        command: the words of the command.
        name: names the file in .build/log/.
        seconds: how long it may take; then it is killed with all processes of its session.
        environ: its environment, by default this one.
        may_fail: returns False for a failure, in place of ending the program.
    """
    log = ROOT / ".build" / "log" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"  {name} ... ", end="", flush=True)
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    taken = time.monotonic() - start
    print(f"{'done' if status == 0 else 'FAILED'} ({taken:.0f} s)", flush=True)
    if status != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        print(f"{tail}\n  all of it: {log}", flush=True)
        if not may_fail:
            raise SystemExit(f"{name} failed with status {status}: see {log}")
    return status == 0
