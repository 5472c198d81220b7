"""Hosts of a network as slow as wanted: network namespaces of this machine behind one switch. Needs root, iproute2 and `tc`."""

from __future__ import annotations

import contextlib
import os
import subprocess
from types import TracebackType
from typing import Sequence

__all__ = ["Hosts"]

_COMMAND_SECONDS = 20


class Hosts:
    """So many hosts, 10.214.9.1 and up, whose links send no faster than the rate. Gone when the block ends.

    Args:
        count: of hosts.
        rate: bits per second each may send, as `tc` writes it: "1gbit", "100mbit".

    Attributes:
        addresses: of the hosts.
    """

    def __init__(self, count: int, rate: str) -> None:
        self.addresses = [f"10.214.9.{index + 1}" for index in range(count)]
        self._rate = rate
        self._switch = f"tfs-bench-{os.getpid()}"
        self._names = [f"{self._switch}-{index}" for index in range(count)]

    def command(self, index: int, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on a host."""
        return ["ip", "netns", "exec", self._names[index], *argv]

    def __enter__(self) -> Hosts:
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove)
            _run("ip", "netns", "add", self._switch)
            _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
            for index, (name, address) in enumerate(zip(self._names, self.addresses)):
                self._attach(index, name, address)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _attach(self, index: int, name: str, address: str) -> None:
        port = f"port{index}"
        _run("ip", "netns", "add", name)
        _run(
            *["ip", "-n", name, "link", "add", "eth0", "type", "veth"],
            *["peer", "name", port, "netns", self._switch],
        )
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-n", name, "link", "set", device, "up")
        shaping = ["tbf", "rate", self._rate, "burst", "128kb", "latency", "50ms"]
        _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", *shaping)

    def _remove(self) -> None:
        for name in [*self._names, self._switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=_COMMAND_SECONDS)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(
            f"`{' '.join(command)}` failed, which needs root: {error.stderr.strip()}"
        ) from error
