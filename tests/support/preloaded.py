"""Processes that begin with TensorFlow imported: an interpreter that has done so forks itself for each program.

The import is most of what a short program costs. It starts no thread, so a fork after it is as sound as one before. What the
program does from there on, and how it ends, is what `python -m module` does; it leads a session of its own, and its parent
is the interpreter, which tells when and how it ended.

`python -m tests.support.preloaded FD` is such an interpreter; FD is its end of a socket. When the other end closes, it kills
what it has started and ends, so that nothing outlives tests that were killed themselves.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from tests.support import namespaces
from tests.support.aside import set_aside

__all__ = ["PreloadedProcess", "start"]

# Neighbours in a group come from different interpreters: as when each is started by itself, they have another order of hashes
# and other random numbers.
_INTERPRETERS = 3
_IMPORT_SECONDS = 120.0
_MESSAGE_BYTES = 1 << 20


class PreloadedProcess:
    """One program; the methods are those of `subprocess.Popen`."""

    def __init__(self, interpreter: _Interpreter, pid: int) -> None:
        self._interpreter = interpreter
        self.pid = pid

    def poll(self) -> int | None:
        self._interpreter.receive(0.0)
        return self._interpreter.statuses.get(self.pid)

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while True:
            status = self.poll()
            if status is not None:
                return status
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout)
            self._interpreter.receive(left)


def start(
    slot: int,
    module: str,
    arguments: Sequence[str],
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    namespace: str = "",
) -> PreloadedProcess:
    """Runs `python -m module arguments...` in the environment `env`.

    Args:
        slot: the program's number in its group: another interpreter than for the numbers beside it.
        log: where its output goes, stdout and stderr.
        namespace: the network namespace to run in; "" for that of the tests.
    """
    wanted = slot % _INTERPRETERS
    for each in range(_INTERPRETERS):
        _interpreter(each)  # all import at the same time
    request = {
        "module": module,
        "arguments": list(arguments),
        "log": str(log),
        "env": dict(env),
        "cwd": str(cwd),
        "namespace": namespace,
    }
    return PreloadedProcess(_interpreter(wanted), _interpreter(wanted).fork(request))


class _Interpreter:
    """Attributes:
    statuses: of the programs that have ended, by pid.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._folder = tempfile.TemporaryDirectory(prefix="preloaded-")
        self._log = Path(self._folder.name) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).resolve().parents[2],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        theirs.close()
        self._pids: list[int] = []
        self._imports = True
        self.statuses: dict[int, int] = {}

    def fork(self, request: dict[str, Any]) -> int:
        """The pid of a new process that runs the program."""
        self._socket.send(json.dumps(request).encode())
        start = time.monotonic()
        end = start + _IMPORT_SECONDS
        while not self._pids:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"no answer in {_IMPORT_SECONDS:g} s from {self}")
            self.receive(left)
        if self._imports:
            set_aside(time.monotonic() - start)
            self._imports = False
        pid = self._pids.pop()
        self.statuses.pop(pid, None)
        return pid

    def receive(self, seconds: float) -> None:
        """Takes in what there is to hear; waits so long for it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while selector.select(seconds):
                text = b""
                with contextlib.suppress(ConnectionError):  # it has ended before it has read a request
                    text = self._socket.recv(_MESSAGE_BYTES)
                if not text:
                    raise AssertionError(f"it has ended: {self}")
                message = json.loads(text)
                if "started" in message:
                    self._pids.append(message["started"])
                else:
                    self.statuses[message["ended"]] = message["status"]
                seconds = 0.0

    def __str__(self) -> str:
        return f"interpreter {self._process.pid}, which wrote:\n{self._log.read_text(errors='replace')}"


@functools.cache
def _interpreter(slot: int) -> _Interpreter:
    del slot
    return _Interpreter()


def _fork_for_each_request(control: socket.socket) -> dict[str, Any]:
    """Returns in each new process, with its request."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    living: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    continue
                text = control.recv(_MESSAGE_BYTES)
                if not text:
                    for each in living:
                        os.kill(each, signal.SIGKILL)
                    sys.exit(0)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for each in (control, woken, wake):
                        each.close()
                    return json.loads(text)
                living.add(pid)
                _tell(control, started=pid)
            _tell_who_ended(control, living)


def _tell_who_ended(control: socket.socket, living: set[int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        living.discard(pid)
        _tell(control, ended=pid, status=os.waitstatus_to_exitcode(status))


def _tell(control: socket.socket, **message: int) -> None:
    with contextlib.suppress(ConnectionError):  # the other end has closed: that is read next
        control.send(json.dumps(message).encode())


def _become(request: dict[str, Any]) -> None:
    """Makes this process one that was started for the request."""
    os.setsid()
    with Path(request["log"]).open("wb") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    if request["namespace"]:
        namespaces.enter(request["namespace"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[1:] = request["arguments"]


def _never_tune_iterators(data: Any) -> None:
    """The thread that tunes an iterator misses, by a race in TensorFlow, that the iterator is to end, and is then waited for:
    as long as the iterator has lived, a minute at most, with the interpreter locked. Where processes share few cores it
    happens in most runs."""
    options = data.Options()
    options.autotune.enabled = False
    data.Dataset._apply_debug_options = lambda dataset: dataset.with_options(options)


if __name__ == "__main__":
    gc.disable()  # a fifth of the import would go into looking for garbage
    import tensorflow as tf

    _never_tune_iterators(tf.data)
    keras = tf.keras.__name__  # which imports Keras
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise SystemExit(
            f"the import of TensorFlow {tf.__version__} and {keras} has left {threads} threads; a fork would lose them"
        )
    gc.enable()
    gc.collect()
    gc.freeze()  # what the import made is not looked through again in each fork
    wanted = _fork_for_each_request(socket.socket(fileno=int(sys.argv[1])))
    _become(wanted)
    runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
