"""Runs processes through an agent of the launcher on this machine, for a caller that goes on living.

The agent handles signals and ends all its descendants. A caller could not do so without touching the other processes that it has
started. If the caller dies, the agent ends the processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Mapping, TextIO

from tf_strategies.launcher.output import LineWriter
from tf_strategies.types import JsonObject

__all__ = ["LocalAgent"]

_READ_BYTES = 1 << 16


class LocalAgent:
    """Starts the agent. Leaving the block ends all processes that still run.

    Args:
        environ: the environment of the processes.
        patience: seconds from the signal that ends the processes until the agent is killed; longer than its own grace.
    """

    def __init__(self, environ: Mapping[str, str], patience: float) -> None:
        self._patience = patience
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tf_strategies.launcher.agent"],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        for pipe, stream in ((self._popen.stdout, sys.stdout), (self._popen.stderr, sys.stderr)):
            if pipe is not None:
                self._selector.register(pipe, selectors.EVENT_READ, _TextRelay(stream))

    def start(self, request: JsonObject) -> None:
        """Tells the agent which processes to run."""
        self._order(json.dumps(request))

    def relay(self, seconds: float | None) -> bool:
        """Passes on the output until all processes have ended, or for a number of seconds.

        Returns:
            True if all processes have ended.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while self._selector.get_map():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            for key, _ in self._selector.select(left):
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    self._selector.unregister(key.fd)
                key.data.pass_on(data)
        with contextlib.suppress(subprocess.TimeoutExpired):  # leaving the block kills it
            self._popen.wait(self._patience)
        return True

    def end(self, number: int) -> None:
        """Ends all processes: with a signal, and after the grace with SIGKILL. An interrupt meanwhile kills them at once."""
        end = time.monotonic() + self._patience
        while self._popen.poll() is None and time.monotonic() < end:
            with contextlib.suppress(KeyboardInterrupt):
                self._order(str(number))
                self.relay(end - time.monotonic())

    def __enter__(self) -> LocalAgent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end(signal.SIGINT if kind is KeyboardInterrupt else signal.SIGTERM)
        finally:
            if self._popen.poll() is None:
                os.killpg(self._popen.pid, signal.SIGKILL)  # its processes die with it
                self._popen.wait()
            self._selector.close()
            for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def _order(self, line: str) -> None:
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # the agent has ended
                self._popen.stdin.write(line.encode() + b"\n")
                self._popen.stdin.flush()


class _TextRelay:
    """Passes on whole lines to a text stream, which may be that of a notebook. A stream that fails gets no more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._lines: list[bytes] = []
        self._writer = LineWriter(self._lines.append)

    def pass_on(self, data: bytes) -> None:
        """Passes on the lines that these bytes complete; b"" is the end."""
        if data:
            self._writer.feed(data)
        else:
            self._writer.finish()
        text = b"".join(line + b"\n" for line in self._lines).decode(errors="replace")
        self._lines.clear()
        if text and self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except Exception:
                self._stream = None
                raise
