"""Runs tfs-doctor on clusters without a fault, many times: it must raise no alarm.

python -m tests.soak.doctors [RUNS]

Clusters of 2 to 8 tasks take turns, on this machine and on hosts that are network namespaces (as root). An alarm is an error or
a warning. Prints each run, and ends with status 1 after an alarm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support import namespaces
from tests.support.doctors import Doctors
from tests.support.processes import REPOSITORY, ReservedPorts, light_environment
from tests.support.switch import Switch

_PORT = 22022
_SECONDS = 90


class Kind(NamedTuple):
    """A cluster: `each` tasks on each of `hosts`, or, where these are none, what tfs-run starts with `options`."""

    hosts: int
    each: int
    library: bool
    options: str = ""


KINDS = (
    Kind(1, 2, True),
    Kind(1, 4, True),
    Kind(1, 8, True),
    Kind(2, 1, True),
    Kind(2, 2, False),
    Kind(2, 4, False),
    Kind(2, 4, True),
    Kind(4, 2, False),
    Kind(8, 1, False),
    Kind(1, 8, False),
    Kind(0, 0, False, "--workers 2 --chief --ps 1 --evaluator"),
    Kind(0, 0, True, "--workers 4 --ps 2"),
    Kind(0, 0, False, "--workers 8"),
)


def run(kind: Kind, folder: Path) -> tuple[list[str], str]:
    """Returns the alarms of one run, and what was printed."""
    arguments = () if kind.library else ("--without-library",)
    if not kind.hosts:
        path = folder / "found.json"
        command = [
            "-m",
            "tf_strategies.launcher.run",
            *kind.options.split(),
            "-m",
            "tf_strategies.doctor",
            "--json",
            str(path),
        ]
        done = subprocess.run(
            [sys.executable, *command, *arguments],
            cwd=REPOSITORY,
            env=light_environment(),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        return alarms(json.loads(path.read_text())["findings"], [done.returncode]), done.stdout + done.stderr
    if kind.hosts == 1:
        with ReservedPorts(kind.each) as ports, Doctors(folder, ports.addresses, wait=10.0) as doctors:
            doctors.start_all(arguments=arguments)
            found = doctors.finish(timeout=_SECONDS)
    else:
        with Switch(kind.hosts) as hosts:
            addresses = [f"{host}:{_PORT + local}" for host in hosts.addresses for local in range(kind.each)]
            with Doctors(folder, addresses, wait=10.0) as doctors:
                for index in range(len(addresses)):
                    doctors.start(index, inside=hosts.inside(index // kind.each), arguments=arguments)
                found = doctors.finish(timeout=_SECONDS)
    return alarms(found.findings, list(found.statuses.values())), found.text


def alarms(findings: list[dict[str, str]], statuses: list[int]) -> list[str]:
    codes = [each["code"] for each in findings if each["severity"] != "note"]
    return [*codes, *(f"status {status}" for status in statuses if status)]


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 52
    reason = namespaces.missing()
    kinds = [kind for kind in KINDS if kind.hosts < 2] if reason else list(KINDS)
    if reason:
        print(f"one machine alone: {reason}")
    bad = 0
    for number in range(runs):
        kind = kinds[number % len(kinds)]
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found, text = run(kind, Path(folder))
        bad += bool(found)
        print(f"{number + 1:3} {kind} {time.monotonic() - start:5.1f} s {found or 'no alarm'}", flush=True)
        if found:
            print(text)
    print(f"{runs} runs, {bad} with an alarm, on {os.cpu_count()} cores")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
