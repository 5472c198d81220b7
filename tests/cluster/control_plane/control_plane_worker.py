"""A worker for the tests of the control plane: joins the group of TF_CONFIG and does what its arguments say.

Usage: control_plane_worker.py '{"timeout": 30, "options": {...}, "actions": [["exchange"], ["hold"], ...]}'
Also "version": another one than that of tf_strategies; "why": what made it leave; "collect_seconds": how long rank 0
waits for descriptions; "breaks": how many calls of on_abort raise.

It writes JOINED <epoch>, GATHERED <json>, PASSED <barrier>, ASKED <instance>, LEFT <seconds>; ABORT <time.monotonic()> <code>
<message> when the group failed, and ends with status 3; REFUSED <message> when it could not join, and ends
with status 4.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import ControlPlane, agreement
from tf_strategies.control_plane.coordinator import failure_decision
from tf_strategies.control_plane.messages import Wait
from tf_strategies.errors import BootstrapError
from tf_strategies.secret import read_secret
from tf_strategies.tls import read_tls

_HOLD_SECONDS = 60.0


def say(line: str) -> None:
    """One write, so that lines of different threads do not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Worker:
    def __init__(self, plan: dict) -> None:
        self.plan = plan
        self.waits_in: tuple[int, str] | None = None
        self.waits_since = 0.0
        self.descriptions: dict[str, str] = plan.get("descriptions", {})
        self.aborts: list[tuple[int, str]] = []
        self.aborted = threading.Event()
        self.breaks = plan.get("breaks", 0)

    def on_abort(self, code: int, message: str) -> None:
        self.breaks -= 1
        if self.breaks >= 0:
            raise OSError("this call of on_abort breaks off")
        self.aborts.append((code, message))
        say(f"ABORT {time.monotonic()} {code} {message}")
        self.aborted.set()

    def describe(self, instance: int) -> str:
        say(f"ASKED {instance}")
        return self.descriptions.get(str(instance), "nothing")

    def waiting(self) -> Wait | None:
        if self.waits_in is None:
            return None
        seconds = time.monotonic() - self.waits_since
        return Wait(self.waits_in[0], seconds, seconds, self.waits_in[1])

    def run(self) -> int:
        gc.disable()  # what only the collector would free counts as remaining
        agreement.__version__ = self.plan.get("version", agreement.__version__)
        failure_decision.COLLECT_SECONDS = self.plan.get("collect_seconds", failure_decision.COLLECT_SECONDS)
        try:
            plane = ControlPlane.join(
                Cluster.from_tf_config(),
                options=self.plan.get("options", {}),
                timeout=self.plan.get("timeout", 30.0),
                secret=read_secret(),
                tls=read_tls(),
                on_abort=self.on_abort,
                describe=self.describe,
                waiting=self.waiting,
            )
        except BootstrapError as error:
            say(f"REFUSED {error}")
            return 4
        say(f"JOINED {plane.epoch}")
        try:
            for action, *arguments in self.plan.get("actions", []):
                getattr(self, action)(plane, *arguments)
        except BootstrapError as error:
            say(f"BROKEN {error}")
        start = time.monotonic()
        plane.close(self.plan.get("why", ""))
        remaining = sum(type(thing).__name__ == "_MultiThreadedRendezvous" for thing in gc.get_objects())
        say(f"REMAINING {remaining}")
        say(f"LEFT {time.monotonic() - start:.2f} aborts={len(self.aborts)}")
        return 3 if self.aborts else 0

    def exchange(self, plane: ControlPlane, payload: dict, what: str = "test data") -> None:
        say(f"GATHERED {json.dumps(plane.exchange(payload, what=what))}")

    def exchange_text(self, plane: ControlPlane, length: int) -> None:
        gathered = plane.exchange({"text": str(plane.rank) * length}, what="text")
        found = [
            [rank, len(entry["text"])]
            for rank, entry in enumerate(gathered)
            if set(entry["text"]) == {str(rank)}
        ]
        say(f"GATHERED {json.dumps(found)}")

    def barrier(self, plane: ControlPlane, what: str = "test") -> None:
        plane.barrier(what)
        say(f"PASSED {what}")

    def hold(self, plane: ControlPlane) -> None:
        self.aborted.wait(_HOLD_SECONDS)

    def hold_for_file(self, plane: ControlPlane, path: str) -> None:
        end = time.monotonic() + _HOLD_SECONDS
        while not Path(path).exists() and not self.aborted.wait(0.02) and time.monotonic() < end:
            pass

    def wait_in(self, plane: ControlPlane, instance: int, text: str) -> None:
        self.waits_since = time.monotonic()
        self.waits_in = (instance, text)
        self.aborted.wait(_HOLD_SECONDS)

    def report(self, plane: ControlPlane, code: int, message: str, instance: int, peer: int) -> None:
        plane.report_failure(code, message, instance, peer)
        self.aborted.wait(_HOLD_SECONDS)

    def report_and_leave(
        self, plane: ControlPlane, code: int, message: str, instance: int, peer: int
    ) -> None:
        plane.report_failure(code, message, instance, peer)

    def hold_the_interpreter(self, plane: ControlPlane, seconds: int) -> None:
        """No other Python thread runs for this time."""
        ctypes.PyDLL(None).sleep(seconds)

    def exit_without_close(self, plane: ControlPlane) -> None:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(Worker(json.loads(sys.argv[1])).run())
