"""Runs one host's share of a cluster, for a tfs-run that started this program over ssh, or for `tfs.launch`.

It reads one line of JSON from its standard input. After that the input carries the numbers of signals, one a line.
When the input ends, the launcher is gone, and so the processes are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

from tf_strategies._version import __version__
from tf_strategies.launcher.call_folder import CallFolder
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.launcher.share import Share
from tf_strategies.launcher.supervisor import Supervisor, exits_on_signals, say
from tf_strategies.secret import SECRET_FILE, temporary_secret_file

ANSWER = b"tfs-run agent: "
_MOST_BYTES = 1 << 24


def main() -> int:
    """Answers one request. Returns the exit status."""
    with exits_on_signals():
        return _answer()


def _answer() -> int:
    # Without a buffer, whose lock the watching thread would hold while the interpreter ends.
    orders = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
    line = orders.readline(_MOST_BYTES)
    if not line.endswith(b"\n"):
        return 2
    request = json.loads(line)
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        say(f"error: the folder of tfs-run is not on this host: {error}")
        return 2
    return _check(request) if "ports" in request else _run(request, orders)


def _check(request: dict[str, Any]) -> int:
    """Says which version this host has, and which ports are free."""
    with ReservedPorts(request["ports"], "0.0.0.0") as reserved:
        answer = json.dumps({"version": __version__, "ports": reserved.ports})
    # First ends a line that the login shell may have begun.
    sys.stdout.buffer.write(b"\n" + ANSWER + answer.encode() + b"\n")
    return 0


def _run(request: dict[str, Any], orders: IO[bytes]) -> int:
    """Runs the processes of a share until they have ended."""
    environ = {**os.environ, **request["environ"]}
    with contextlib.ExitStack() as held:
        if request["secret"] is not None:
            environ[SECRET_FILE] = held.enter_context(temporary_secret_file(request["secret"]))
        try:
            supervisor = Share.from_json(request["share"]).supervisor(environ)
        except ValueError as error:
            say(f"error: {error}")
            return 2
        gone = threading.Event()
        threading.Thread(target=_watch, args=(orders, gone), daemon=True).start()
        folder = request.get("folder")
        return supervisor.run() if folder is None else _run_call(supervisor, Path(folder), gone)


def _run_call(supervisor: Supervisor, folder: Path, gone: threading.Event) -> int:
    """Runs the processes of a `tfs.launch`, and tells it how they have ended. Removes its folder if it is gone."""
    try:
        status = supervisor.run()
        CallFolder(folder).write_report(supervisor.failed, supervisor.ends)
    finally:  # without a caller, the launcher's own last lines raise BrokenPipeError
        if gone.is_set():
            shutil.rmtree(folder, ignore_errors=True)
    return status


def _watch(orders: IO[bytes], gone: threading.Event) -> None:
    """Sends this process the signals that the launcher orders, and SIGTERM when the launcher is gone."""
    for line in iter(lambda: orders.readline(16), b""):
        os.kill(os.getpid(), int(line))
    gone.set()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
